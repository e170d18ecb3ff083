#include "milepost/manager/fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "milepost/base/error.h"
#include "milepost/engine/checkpoint.h"

namespace milepost::manager {
namespace {

constexpr size_t kListed = 20;

void add_list(std::string_view title, const std::vector<std::string>& entries, std::string* text) {
  if (entries.empty()) return;
  *text += fmt::format("\n  {} ({}):", title, entries.size());
  for (size_t i = 0; i < std::min(entries.size(), kListed); ++i) *text += "\n    " + entries[i];
  if (entries.size() > kListed) *text += fmt::format("\n    and {} more", entries.size() - kListed);
}

// Which cannot be left out.
bool concerns_model(const Fit& fit) {
  const auto is_of_model = [](const std::string& entry) { return is_model_key(entry); };
  return std::any_of(fit.missing.begin(), fit.missing.end(), is_of_model) ||
         std::any_of(fit.mismatched.begin(), fit.mismatched.end(), is_of_model);
}

}  // namespace

Fit compare(const Catalog& catalog, const std::vector<WantedEntry>& wanted, bool with_unexpected) {
  Fit fit;
  std::unordered_set<std::string_view> known;
  for (const WantedEntry& entry : wanted) {
    known.insert(entry.name);
    const std::optional<int64_t> tensor = catalog.find_tensor(entry.name);
    const bool is_object = catalog.find_object(entry.name).has_value();
    const std::string name = printable(entry.name);
    if (!tensor && !is_object) {
      fit.missing.push_back(name);
    } else if (is_object != entry.is_object) {
      fit.mismatched.push_back(fmt::format("{}: saved as {}, wanted as {}", name,
                                           is_object ? "a value" : "a tensor",
                                           is_object ? "a tensor" : "a value"));
    } else if (tensor) {
      const Dims& saved = catalog.tensors()[static_cast<size_t>(*tensor)].shape;
      if (saved != entry.shape) {
        fit.mismatched.push_back(
            fmt::format("{}: saved {}, wanted {}", name, dims_text(saved), dims_text(entry.shape)));
      }
    }
  }
  if (!with_unexpected) return fit;
  for (const Catalog::Tensor& tensor : catalog.tensors()) {
    if (is_model_key(tensor.name) && !known.contains(tensor.name)) {
      fit.unexpected.push_back(printable(tensor.name));
    }
  }
  return fit;
}

void require_fit(const Fit& fit, const std::string& path) {
  if (fit.is_good()) return;
  std::string text = "the checkpoint does not fit this job, and nothing was loaded:";
  add_list("missing in the checkpoint", fit.missing, &text);
  add_list("of another shape", fit.mismatched, &text);
  add_list("in the checkpoint, but not in the model", fit.unexpected, &text);
  std::string hint = "start the job with the model that was saved";
  if (!concerns_model(fit)) hint += ", or leave parts out with --checkpoint.exclude-from-loading";
  if (fit.mismatched.empty()) {
    MissingKeyError error(text, hint);
    error.set_path(path);
    throw error;
  }
  ShapeMismatchError error(text, hint);
  error.set_path(path);
  throw error;
}

std::string names_text(const std::vector<std::string>& names, size_t limit) {
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), limit); ++i) text += (i == 0 ? "" : ", ") + names[i];
  if (names.size() > limit) text += fmt::format(" and {} more", names.size() - limit);
  return text;
}

}  // namespace milepost::manager
