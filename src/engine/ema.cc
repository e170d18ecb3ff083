#include "milepost/engine/ema.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "milepost/base/error.h"
#include "milepost/engine/derived.h"

namespace milepost {
namespace {

constexpr std::string_view kOwnPrefix = "ema_optimizer.state.", kTitanPrefix = "ema.state.";
constexpr std::string_view kValues = ".ema_params";
constexpr std::string_view kBuffer = ".expert_bias_E";
constexpr std::string_view kFused = "wqkv.weight";

const Catalog::Tensor& info_of(const Catalog& catalog, int64_t tensor) {
  return catalog.tensors()[static_cast<size_t>(tensor)];
}

[[noreturn]] void refuse_choice(const Checkpoint& checkpoint, const std::string& text,
                                const std::vector<EmaCopy>& copies) {
  std::vector<std::string> names;
  for (const EmaCopy& copy : copies) names.push_back(copy.name.empty() ? "one without a name" : copy.name);
  ValueError error(fmt::format("{}: {}", text, fmt::join(names, ", ")),
                   "name one: --ema-key COPY of `milepost export`, or ema_weights.decay or "
                   "ema_weights.half_life_fraction of a training run");
  error.set_path(checkpoint.path());
  throw error;
}

// Makes the map of ema_as_model, tensor by tensor.
class Averages {
 public:
  Averages(const Checkpoint& source, const EmaCopy& copy, const std::optional<flavor::Model>& model)
      : source_(source), copy_(copy), model_(model) {}

  void add(const Catalog::Tensor& weight, int64_t tensor) {
    if (const auto average = find(weight.name)) return add_whole(weight, *average);
    if (weight.name.ends_with(kBuffer)) {
      return map_.add(weight.name, weight.dtype, weight.shape, {whole_part(tensor, weight.shape)});
    }
    if (is_tied(weight.name)) {
      if (const auto average = find("tok_embeddings.weight")) return add_whole(weight, *average);
    }
    if (add_of_fused(weight)) return;
    MissingKeyError error("a weight has no average in the checkpoint: another model than this was averaged");
    error.set_key(copy_.key(weight.name));
    error.set_path(source_.path());
    throw error;
  }
  KeyMap take() && { return std::move(map_); }

 private:
  std::optional<int64_t> find(std::string_view parameter) const {
    return source_.catalog().find_tensor(copy_.key(parameter));
  }
  bool is_tied(std::string_view name) const {
    return name == "lm_head.weight" && model_ &&
           std::visit([](const auto& dims) { return dims.tied_embeddings; }, model_->dims);
  }
  void require_shape(const std::string& name, const Dims& shape, const Dims& wanted) const {
    if (shape == wanted) return;
    ShapeMismatchError error(
        fmt::format("the average is {}, where the weight asks for {}", dims_text(shape), dims_text(wanted)));
    error.set_key(copy_.key(name));
    error.set_path(source_.path());
    throw error;
  }
  void add_whole(const Catalog::Tensor& weight, int64_t average) {
    const Catalog::Tensor& values = info_of(source_.catalog(), average);
    require_shape(weight.name, values.shape, weight.shape);
    map_.add(weight.name, values.dtype, weight.shape, {whole_part(average, weight.shape)});
  }

  // Rows of the fused projection: for each key head its query heads, the key head, the value head.
  bool add_of_fused(const Catalog::Tensor& weight) {
    const auto* dims = model_ ? std::get_if<flavor::Llama3>(&model_->dims) : nullptr;
    const size_t dot = weight.name.size() < 9 ? 0 : weight.name.size() - 9;  // of "wq.weight"
    const std::string_view part = std::string_view(weight.name).substr(dot);
    if (dims == nullptr || (part != "wq.weight" && part != "wk.weight" && part != "wv.weight")) return false;
    const std::string fused = weight.name.substr(0, dot) + std::string(kFused);
    const std::optional<int64_t> average = find(fused);
    if (!average) return false;
    const Catalog::Tensor& values = info_of(source_.catalog(), *average);
    const int64_t query_rows = dims->n_heads / dims->n_kv_heads * dims->head_dim;
    const int64_t rows = part[1] == 'q' ? query_rows : dims->head_dim;
    const int64_t period = query_rows + 2 * dims->head_dim;
    const int64_t first = part[1] == 'q' ? 0 : query_rows + (part[1] == 'v' ? dims->head_dim : 0);
    require_shape(fused, values.shape, {period * dims->n_kv_heads, dims->dim});
    require_shape(fused, {rows * dims->n_kv_heads, dims->dim}, weight.shape);
    std::vector<TensorPart> parts;
    for (int64_t head = 0; head < dims->n_kv_heads; ++head) {
      TensorPart piece;
      piece.first_row = head * rows;
      piece.num_rows = rows;
      piece.source = *average;
      piece.origin = {head * period + first, 0};
      parts.push_back(piece);
    }
    map_.add(weight.name, values.dtype, weight.shape, std::move(parts));
    return true;
  }

  const Checkpoint& source_;
  const EmaCopy& copy_;
  const std::optional<flavor::Model>& model_;
  KeyMap map_;
};

}  // namespace

EmaCopy own_ema() { return {"", std::string(kOwnPrefix), std::string(kValues)}; }

std::string ema_copy_name(std::optional<double> decay, double half_life_fraction) {
  std::string name;
  for (const char c :
       fmt::format("{}{}", decay ? "decay_" : "half_life_", decay.value_or(half_life_fraction))) {
    if (c == '+') continue;
    name += c == '.' ? 'p' : c == '-' ? 'm' : c;
  }
  return name;
}

std::vector<EmaCopy> ema_copies(const Catalog& catalog) {
  std::vector<EmaCopy> copies;
  std::set<std::string> names;
  for (const Catalog::Tensor& tensor : catalog.tensors()) {
    const std::string_view name = tensor.name;
    if (name.starts_with(kOwnPrefix) && name.ends_with(kValues) && copies.empty())
      copies.push_back(own_ema());
    const size_t values = name.rfind(std::string(kValues) + ".");
    if (name.starts_with(kTitanPrefix) && values != name.npos) {
      names.emplace(name.substr(values + kValues.size() + 1));
    }
  }
  for (const std::string& name : names) {
    copies.push_back({name, std::string(kTitanPrefix), fmt::format("{}.{}", kValues, name)});
  }
  return copies;
}

std::optional<EmaCopy> choose_ema(const Checkpoint& checkpoint, std::string_view name) {
  std::vector<EmaCopy> copies = ema_copies(checkpoint.catalog());
  if (copies.empty()) return std::nullopt;
  if (!name.empty()) {
    const auto named =
        std::find_if(copies.begin(), copies.end(), [&](const EmaCopy& c) { return c.name == name; });
    if (named != copies.end()) return *named;
    refuse_choice(checkpoint, fmt::format("no moving average is named {}, but there are", printable(name)),
                  copies);
  }
  if (copies[0].name.empty()) return copies[0];
  if (copies.size() > 1) refuse_choice(checkpoint, "it holds several moving averages", copies);
  return copies[0];
}

std::shared_ptr<const Checkpoint> ema_as_model(const std::shared_ptr<const Checkpoint>& source,
                                               const EmaCopy& copy, const ModelChoice& choice) {
  const NamedModel native = as_native(source, choice, std::nullopt);
  const Catalog& catalog = source->catalog();
  Averages averages(*source, copy, native.model);
  for (std::string_view name : catalog.names_in_order()) {
    const std::optional<int64_t> tensor = catalog.find_tensor(name);
    if (tensor && is_model_key(name)) averages.add(info_of(catalog, *tensor), *tensor);
  }
  return derive(source, std::move(averages).take());
}

}  // namespace milepost
