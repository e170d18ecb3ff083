#include "inspection.h"

#include <algorithm>
#include <array>

#include "milepost/catalog/layout.h"
#include "milepost/storage/storage.h"

namespace milepost::cli {
namespace {

constexpr std::array<std::string_view, 7> kGroups = {"model",       "optimizer", "lr_scheduler", "dataloader",
                                                     "train_state", "ema",       "milepost"};

size_t group_of(std::string_view name) {
  if (is_model_key(name)) return 0;
  const std::string_view first = name.substr(0, name.find('.'));
  if (first == "ema_optimizer") return 5;
  const auto found = std::find(kGroups.begin(), kGroups.end(), first);
  return found == kGroups.end() ? 0 : static_cast<size_t>(found - kGroups.begin());
}

void add_saturating(int64_t* sum, int64_t value) {
  if (__builtin_add_overflow(*sum, value, sum)) *sum = INT64_MAX;
}

void add_tensor(Totals* totals, const Catalog::Tensor& tensor) {
  ++totals->tensors;
  add_saturating(&totals->elements, num_elements(tensor.shape));
  add_saturating(&totals->bytes, tensor_bytes(tensor));
}

}  // namespace

Summary summarise(const Checkpoint& checkpoint) {
  const Catalog& catalog = checkpoint.catalog();
  Summary summary;
  std::array<Totals, kGroups.size()> groups;
  std::array<Totals, kNumDTypes> dtypes;
  for (const Catalog::Tensor& tensor : catalog.tensors()) {
    add_tensor(&summary.all, tensor);
    add_tensor(&groups[group_of(tensor.name)], tensor);
    add_tensor(&dtypes[static_cast<size_t>(tensor.dtype)], tensor);
  }
  for (const Catalog::Object& object : catalog.objects()) {
    ++summary.all.objects;
    ++groups[group_of(object.name)].objects;
  }
  for (size_t i = 0; i < kGroups.size(); ++i) {
    if (groups[i].tensors + groups[i].objects > 0) summary.groups.emplace_back(kGroups[i], groups[i]);
  }
  for (size_t i = 0; i < dtypes.size(); ++i) {
    if (dtypes[i].tensors > 0) summary.dtypes.emplace_back(static_cast<DType>(i), dtypes[i]);
  }
  std::stable_sort(summary.dtypes.begin(), summary.dtypes.end(),
                   [](const auto& a, const auto& b) { return a.second.bytes > b.second.bytes; });
  summary.chunks = catalog.num_chunks();
  for (const Catalog::File& file : catalog.files()) {
    if (file.size_bytes < 0) {
      summary.missing_files.push_back(file.path);
    } else {
      add_saturating(&summary.file_bytes, file.size_bytes);
    }
  }
  return summary;
}

std::vector<Entry> select_entries(const Catalog& catalog, const std::vector<std::string>& globs) {
  std::vector<Entry> entries;
  for (const std::string_view name : catalog.names_in_order()) {
    const bool matches = globs.empty() || std::any_of(globs.begin(), globs.end(), [&](const std::string& g) {
                           return glob_match(g, name);
                         });
    if (!matches) continue;
    if (const std::optional<int64_t> tensor = catalog.find_tensor(name)) {
      entries.push_back({false, *tensor});
    } else if (const std::optional<int64_t> object = catalog.find_object(name)) {
      entries.push_back({true, *object});
    }
  }
  return entries;
}

const std::string& entry_name(const Catalog& catalog, const Entry& entry) {
  const auto index = static_cast<size_t>(entry.index);
  return entry.is_object ? catalog.objects()[index].name : catalog.tensors()[index].name;
}

}  // namespace milepost::cli
