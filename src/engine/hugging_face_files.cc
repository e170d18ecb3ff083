#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "engine/model_choice.h"
#include "milepost/adapt/hf_config.h"
#include "milepost/base/error.h"
#include "milepost/engine/model.h"
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
  return safetensors::read_index(*like.storage->open_read(path)).weight_map;
}

}  // namespace

void add_hugging_face_files(const NamedModel& exported, std::optional<DType> dtype, bool fp8,
                            const std::optional<std::string>& like, ConvertOptions* options) {
  options->always_index = true;
  const DType written = written_dtype(exported.checkpoint->catalog(), dtype);
  std::optional<std::string> config;
  if (like) {
    const StorageLocation location = resolve_location(*like);
    const std::optional<FileInfo> info = location.storage->stat(location.path);
    if (!info || !info->is_directory) {
      StorageError error(ErrorCode::kNotFound, "there is no such folder", *like);
      error.set_hint("name a folder of the original model, with its config.json, tokenizer and index");
      throw error;
    }
    config = read_config_text(location);
    if (config) {
      config = adapt::update_hf_config(*config, join_path(location.path, "config.json"), written, fp8);
    }
    options->weight_map = weight_map_of(location);
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
