#include "milepost/engine/model.h"

#include <fmt/format.h>

#include <array>
#include <numeric>

#include "engine/model_choice.h"
#include "milepost/base/error.h"
#include "milepost/engine/derived.h"

namespace milepost {
namespace {

using adapt::Naming;

// The model's tensors; the other entries are left out.
std::vector<int64_t> model_tensors(const Catalog& catalog, std::vector<adapt::LeftOut>* left_out) {
  std::vector<int64_t> tensors;
  for (std::string_view name : catalog.names_in_order()) {
    const std::optional<int64_t> tensor = catalog.find_tensor(name);
    if (tensor && is_model_key(name)) {
      tensors.push_back(*tensor);
    } else {
      left_out->push_back({std::string(name), tensor ? "not of the model" : "not a tensor of the model"});
    }
  }
  return tensors;
}

std::vector<int64_t> all_tensors(const Catalog& catalog) {
  std::vector<int64_t> tensors(catalog.tensors().size());
  std::iota(tensors.begin(), tensors.end(), 0);
  return tensors;
}

// A source on its way to other names: a checkpoint, and which of its tensors are looked at.
struct Passage {
  std::shared_ptr<const Checkpoint> checkpoint;
  std::vector<int64_t> tensors;

  void go_through(KeyMap map) {
    checkpoint = derive(std::move(checkpoint), std::move(map));
    tensors = all_tensors(checkpoint->catalog());
  }
  void go_through(adapt::ModelMap map, NamedModel* out) {
    go_through(std::move(map.map));
    out->left_out.insert(out->left_out.end(), map.left_out.begin(), map.left_out.end());
    out->notes.insert(out->notes.end(), map.notes.begin(), map.notes.end());
  }
};

// Calls `make`; what it throws names the source.
template <typename Make>
auto of_source(const Checkpoint& source, Make&& make) {
  try {
    return make();
  } catch (Error& error) {
    error.set_path(source.path());
    throw;
  }
}

// Where a file holds the model under a key of its own, as torch.save({"model": ...}) does, the tensors below
// that key take its place under their names without it.
void take_out_of_wrapper(Passage& passage, NamedModel* out) {
  constexpr std::array<std::string_view, 4> kWrappers = {"model.", "state_dict.", "model_state_dict.",
                                                         "module."};
  const std::vector<Catalog::Tensor>& all = passage.checkpoint->catalog().tensors();
  for (std::string_view wrapper : kWrappers) {
    KeyMap map;
    std::vector<adapt::LeftOut> outside;
    for (int64_t tensor : passage.tensors) {
      const Catalog::Tensor& info = all[static_cast<size_t>(tensor)];
      if (info.name.starts_with(wrapper)) {
        map.add(info.name.substr(wrapper.size()), info.dtype, info.shape, {whole_part(tensor, info.shape)});
      } else {
        outside.push_back({info.name, fmt::format("not under '{}'", wrapper.substr(0, wrapper.size() - 1))});
      }
    }
    if (adapt::find_naming(map.target, all_tensors(map.target)) == Naming::kUnknown) continue;
    out->left_out.insert(out->left_out.end(), outside.begin(), outside.end());
    out->notes.push_back(fmt::format("the model lies under '{}', which is taken off its names",
                                     wrapper.substr(0, wrapper.size() - 1)));
    passage.go_through(std::move(map));
    return;
  }
}

// Names that no table knows pass only when nobody said what the model is.
[[noreturn]] void refuse_names(const Checkpoint& source, bool is_empty) {
  ValueError error(
      is_empty ? "it holds no tensors of a model" : "its tensors have the names of no known model",
      "`milepost convert` changes formats and keeps names; `milepost inspect` lists them");
  error.set_path(source.path());
  throw error;
}

// The model of a native checkpoint; if it is not known, a note says why.
std::optional<ChosenModel> try_choose(const Passage& passage, const ModelChoice& choice,
                                      const std::optional<adapt::HfConfig>& config,
                                      std::vector<std::string>* notes) {
  const bool was_told = choice.model || choice.flavor || choice.config || choice.exact;
  try {
    return choose_model(*passage.checkpoint, passage.tensors, Naming::kNative, choice, config);
  } catch (const ValueError& error) {
    if (was_told) throw;
    notes->push_back(
        fmt::format("the model was not recognised, so names and shapes are unchecked: {}", error.summary()));
    return std::nullopt;
  }
}

bool routes_by_softmax(const flavor::Model& model) {
  const auto* dims = std::get_if<flavor::DeepSeekV3>(&model.dims);
  return dims != nullptr && dims->score_func == flavor::DeepSeekV3::Score::kSoftmax;
}

void keep_names(Passage& passage, NamedModel* out) {
  adapt::ModelMap map;
  for (int64_t tensor : passage.tensors) {
    const Catalog::Tensor& info = passage.checkpoint->catalog().tensors()[static_cast<size_t>(tensor)];
    map.map.add(info.name, info.dtype, info.shape, {whole_part(tensor, info.shape)});
  }
  passage.go_through(std::move(map), out);
}

}  // namespace

NamedModel as_native(const std::shared_ptr<const Checkpoint>& source, const ModelChoice& choice,
                     std::optional<DType> dtype) {
  NamedModel out;
  Passage passage{source, model_tensors(source->catalog(), &out.left_out)};
  const std::optional<adapt::HfConfig> config = find_config(*source, choice, &out.notes);
  if (adapt::has_quantised(source->catalog(), passage.tensors)) {
    const std::array<int64_t, 2> block =
        config ? std::array{config->quantised_block[0], config->quantised_block[1]}
               : std::array<int64_t, 2>{128, 128};
    adapt::ModelMap map = of_source(*source, [&] {
      return adapt::dequantised_map(source->catalog(), passage.tensors, dtype.value_or(DType::kBFloat16),
                                    block);
    });
    passage.go_through(std::move(map), &out);
    out.dequantised = true;
  }
  Naming naming = adapt::find_naming(passage.checkpoint->catalog(), passage.tensors);
  if (naming == Naming::kUnknown) {
    take_out_of_wrapper(passage, &out);
    naming = adapt::find_naming(passage.checkpoint->catalog(), passage.tensors);
  }
  if (naming == Naming::kUnknown) refuse_names(*source, passage.tensors.empty());
  std::optional<ChosenModel> chosen;
  if (naming == Naming::kHuggingFace) {
    chosen = choose_model(*passage.checkpoint, passage.tensors, naming, choice, config);
  } else {
    chosen = try_choose(passage, choice, config, &out.notes);
  }
  if (!chosen) {
    keep_names(passage, &out);
  } else {
    const auto make_map = naming == Naming::kHuggingFace ? adapt::import_map : adapt::native_map;
    adapt::ModelMap map = of_source(*source, [&] {
      return make_map(passage.checkpoint->catalog(), passage.tensors, chosen->model, chosen->map);
    });
    passage.go_through(std::move(map), &out);
    out.notes.insert(out.notes.end(), chosen->notes.begin(), chosen->notes.end());
    out.model = std::move(chosen->model);
  }
  out.renamed = naming == Naming::kHuggingFace;
  out.checkpoint = passage.checkpoint;
  return out;
}

NamedModel as_hugging_face(const std::shared_ptr<const Checkpoint>& source, const ModelChoice& choice,
                           std::optional<DType> dtype, bool fp8) {
  NamedModel out = as_native(source, choice, dtype);
  if (!out.model) {
    // The reason why it was not recognised.
    const std::vector<int64_t> tensors = all_tensors(out.checkpoint->catalog());
    std::vector<std::string> notes;
    const std::optional<adapt::HfConfig> config = find_config(*source, choice, &notes);
    out.model = choose_model(*out.checkpoint, tensors, Naming::kNative, choice, config).model;
  }
  Passage passage{out.checkpoint, all_tensors(out.checkpoint->catalog())};
  adapt::ModelMap map = of_source(*source, [&] {
    return adapt::export_map(passage.checkpoint->catalog(), passage.tensors, *out.model, {});
  });
  passage.go_through(std::move(map), &out);
  if (routes_by_softmax(*out.model)) {
    out.notes.emplace_back(
        "its experts are routed by softmax: config.json says so, but transformers computes this architecture "
        "by sigmoid");
  }
  if (fp8 && out.dequantised) {
    out.notes.emplace_back(
        "its weights were fp8 before: the new codes are the same only where Milepost had chosen the scales");
  }
  if (fp8) {
    passage.go_through(
        adapt::fp8_map(passage.checkpoint->catalog(), *out.model, dtype.value_or(DType::kBFloat16)));
  }
  out.renamed = !out.renamed;
  out.checkpoint = passage.checkpoint;
  return out;
}

std::shared_ptr<const Checkpoint> synthetic_hugging_face(const flavor::Model& model, DType dtype, bool fp8,
                                                         uint64_t seed) {
  KeyMap map;
  for (const adapt::KeyEntry& entry : adapt::expand(adapt::key_table(model.model()), model)) {
    if (entry.row->kind == adapt::KeyKind::kOnlyHf || entry.export_absent) continue;
    const Dims shape = entry.hf_shape();
    for (const std::string& name : entry.hf) {
      TensorPart part = whole_part(-1, shape);
      part.values = TensorPart::Values::kRandom;
      part.seed = (seed << 32) + map.target.tensors().size();
      map.add(name, entry.row->is_float32 ? DType::kFloat32 : dtype, shape, {part});
    }
  }
  std::shared_ptr<const Checkpoint> checkpoint = derive(Checkpoint::in_memory({}, {}, {}), std::move(map));
  if (fp8) {
    KeyMap codes = adapt::fp8_map(checkpoint->catalog(), model, dtype);
    checkpoint = derive(std::move(checkpoint), std::move(codes));
  }
  return checkpoint;
}

}  // namespace milepost
