#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "engine/model_choice.h"
#include "milepost/adapt/hf_config.h"
#include "milepost/adapt/key_table.h"
#include "milepost/base/error.h"
#include "milepost/engine/model.h"
#include "milepost/flavor/flavor.h"
#include "milepost/format/safetensors.h"

namespace milepost {
namespace {

constexpr int64_t kMaxCopiedBytes = 256 << 20;
// What goes with the weights of any dtype; first and last part of the names.
constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kCopied = {{
    {"tokenizer", ".json"},
    {"tokenizer.model", ""},
    {"vocab.", ""},
    {"merges.txt", ""},
    {"special_tokens_map.json", ""},
    {"added_tokens.json", ""},
    {"generation_config.json", ""},
    {"chat_template", ""},
}};

bool is_copied(std::string_view name) {
  return std::any_of(kCopied.begin(), kCopied.end(), [&](const auto& pattern) {
    return name.starts_with(pattern.first) && name.ends_with(pattern.second);
  });
}

// What config.json calls the dtype: that of the first weight that holds values.
DType written_dtype(const Catalog& catalog, std::optional<DType> dtype) {
  if (dtype) return *dtype;
  for (const Catalog::Tensor& tensor : catalog.tensors()) {
    if (dtype_info(tensor.dtype).kind == DTypeKind::kFloat && dtype_size(tensor.dtype) > 1)
      return tensor.dtype;
  }
  return DType::kFloat32;
}

std::vector<std::pair<std::string, std::string>> weight_map_of(const StorageLocation& like) {
  const std::string path = join_path(like.path, safetensors::kIndexName);
  if (!like.storage->stat(path)) return {};
  auto weight_map = safetensors::read_index(*like.storage->open_read(path)).weight_map;
  for (const auto& [name, file] : weight_map) {
    if (file.ends_with(".safetensors")) continue;  // else it might be another file that is written
    FormatError error(
        ErrorCode::kUnsupported,
        fmt::format("this index puts it into '{}', which is no .safetensors file", printable(file)),
        "leave out --like, or name a folder of safetensors");
    error.set_path(path).set_key(name);
    throw error;
  }
  return weight_map;
}

// A release that lacks what may be absent, such as the biases of routers by softmax, does not say where it
// would lie: it goes to the tensor before it in the model.
void place_what_may_be_absent(const flavor::Model& model,
                              std::vector<std::pair<std::string, std::string>>* weight_map) {
  const std::map<std::string, std::string> file_of(weight_map->begin(), weight_map->end());
  std::string nearest;
  for (const adapt::KeyEntry& entry : adapt::expand(adapt::key_table(model.model()), model)) {
    for (const std::string& name : entry.hf) {
      if (const auto found = file_of.find(name); found != file_of.end()) {
        nearest = found->second;
      } else if (!entry.absent.empty() && !nearest.empty()) {
        weight_map->emplace_back(name, nearest);
      }
    }
  }
}

// A config.json of another model would go with the weights. One that cannot be read (a flavor was named
// instead) is copied all the same.
void require_same_model(const flavor::Model& exported, std::string_view text, const std::string& path) {
  std::optional<flavor::Model> model;
  try {
    model = adapt::read_hf_config(text, path).model;
  } catch (const Error&) {
    return;
  }
  const std::string difference = difference_of_sizes(*model, exported);
  if (difference.empty()) return;
  ValueError error(
      fmt::format("this is no configuration of {}, which is exported: {}", exported.text(), difference),
      "name another folder with --like, or leave --like or --flavor out");
  error.set_path(path);
  throw error;
}

}  // namespace

void require_like_folder(const std::string& like) {
  const StorageLocation location = resolve_location(like);
  const std::optional<FileInfo> info = location.storage->stat(location.path);
  if (info && info->is_directory) return;
  StorageError error(ErrorCode::kNotFound, "there is no such folder", like);
  error.set_hint("name a folder of the original model, with its config.json, tokenizer and index");
  throw error;
}

void add_hugging_face_files(const NamedModel& exported, std::optional<DType> dtype, bool fp8,
                            const std::optional<std::string>& like, ConvertOptions* options) {
  options->always_index = true;
  const DType written = written_dtype(exported.checkpoint->catalog(), dtype);
  std::optional<std::string> config;
  if (like) {
    require_like_folder(*like);
    const StorageLocation location = resolve_location(*like);
    config = read_config_text(location);
    if (config) {
      const std::string path = join_path(location.path, "config.json");
      if (exported.model) require_same_model(*exported.model, *config, path);
      config = adapt::update_hf_config(*config, path, exported.model, written, fp8);
    }
    options->weight_map = weight_map_of(location);
    if (exported.model) place_what_may_be_absent(*exported.model, &options->weight_map);
    // Scales lie beside their codes, which the index of a release without codes does not know.
    if (fp8) {
      std::vector<std::pair<std::string, std::string>> scales;
      for (const auto& [name, file] : options->weight_map) scales.emplace_back(name + "_scale_inv", file);
      options->weight_map.insert(options->weight_map.end(), scales.begin(), scales.end());
    }
    for (const FileInfo& file : location.storage->list(location.path)) {
      if (!file.is_regular || !is_copied(file.name)) continue;
      const std::string path = join_path(location.path, file.name);
      const ByteVector content = read_all(*location.storage->open_read(path), kMaxCopiedBytes);
      options->companions.push_back({file.name, std::string(as_text(content))});
    }
  }
  if (!config && exported.model) config = adapt::write_hf_config(*exported.model, written, fp8);
  if (config) options->companions.push_back({"config.json", std::move(*config)});
}

}  // namespace milepost
