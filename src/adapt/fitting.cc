#include <fmt/format.h>

#include <algorithm>

#include "adapt/key_names.h"
#include "milepost/adapt/model_map.h"
#include "milepost/base/error.h"

namespace milepost::adapt {
namespace {

// More stages than any model has: names that claim more fit nothing.
constexpr int64_t kMaxStages = 64;

struct Comparison {
  int64_t matching = 0, unlike = 0;
  std::string first_difference;

  template <typename MakeText>
  void differ(MakeText&& make_text) {
    if (unlike++ == 0) first_difference = make_text();
  }
};

Comparison compare(const Catalog& catalog, std::span<const int64_t> tensors, Naming naming,
                   const flavor::Model& model) {
  TensorsByName source(catalog, tensors);
  Comparison out;
  for (const KeyEntry& entry : expand(key_table(model.model()), model)) {
    const bool native = naming == Naming::kNative;
    const Dims shape = native ? entry.shape : entry.hf_shape();
    const std::vector<std::string> own = {entry.native};
    for (const std::string& name : native ? own : entry.hf) {
      const std::optional<int64_t> tensor = source.find(name);
      if (tensor) source.mark_placed(*tensor);
      if (entry.row->kind == KeyKind::kOnlyHf) continue;
      if (!tensor) {
        if (entry.absent.empty() || (native && !entry.export_absent))
          out.differ([&] { return printable(name) + " is missing"; });
      } else if (source.info(*tensor).shape != shape) {
        out.differ([&] {
          return fmt::format("{} is {}, not {}", printable(name), dims_text(source.info(*tensor).shape),
                             dims_text(shape));
        });
      } else {
        ++out.matching;
      }
    }
  }
  for (int64_t tensor : source.unplaced())
    out.differ([&] { return printable(source.info(tensor).name) + " has no place in it"; });
  return out;
}

}  // namespace

Fit find_fitting(const Catalog& catalog, std::span<const int64_t> tensors, Naming naming,
                 std::span<const flavor::Model> candidates) {
  Fit fit;
  int64_t most = -1;
  for (const flavor::Model& candidate : candidates) {
    flavor::Model model = candidate;
    if (auto* dims = std::get_if<flavor::DeepSeekV3>(&model.dims)) {
      dims->num_mtp_layers = std::min(kMaxStages, count_mtp_stages(catalog, tensors, model, naming));
    }
    const Comparison comparison = compare(catalog, tensors, naming, model);
    if (comparison.unlike == 0) fit.exact.push_back(model);
    if (comparison.matching > most) {
      most = comparison.matching;
      fit.closest = fmt::format("{}: {}", model.text(), comparison.first_difference);
    }
  }
  return fit;
}

}  // namespace milepost::adapt
