// The fixed vocabulary of a `.metadata` pickle: attribute names, modules, classes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace milepost::dcp {

inline constexpr std::string_view kVersion = "1.0.0";

// Words that occur as attribute, module or class names, each with one number.
enum class Word : uint8_t {
  kStateDictMetadata,
  kPlannerData,
  kStorageData,
  kStorageMeta,
  kVersionName,
  kProperties,
  kSize,
  kChunks,
  kOffsets,
  kSizes,
  kFqn,
  kIndex,
  kOffset,
  kRelativePath,
  kLength,
  kTransformDescriptors,
  kCheckpointId,
  kSaveId,
  kLoadId,
  kModules,
  kStrided,
  kMetadataModule,
  kFilesystemModule,
  kShardedModule,
  kTorchModule,
  kSerializationModule,
  kPathlibModule,
  kMetadataClass,
  kTensorStorageClass,
  kBytesStorageClass,
  kChunkClass,
  kPropertiesClass,
  kMemoryFormatClass,
  kOldMemoryFormatClass,
  kIndexClass,
  kStorageMetaClass,
  kStorageInfoClass,
  kSizeClass,
  kGetLayout,
  kPosixPathClass,
};

inline constexpr std::array<std::string_view, 40> kWords = {
    "state_dict_metadata",
    "planner_data",
    "storage_data",
    "storage_meta",
    "version",
    "properties",
    "size",
    "chunks",
    "offsets",
    "sizes",
    "fqn",
    "index",
    "offset",
    "relative_path",
    "length",
    "transform_descriptors",
    "checkpoint_id",
    "save_id",
    "load_id",
    "modules",
    "torch.strided",
    "torch.distributed.checkpoint.metadata",
    "torch.distributed.checkpoint.filesystem",
    "torch.distributed._shard.sharded_tensor.metadata",
    "torch",
    "torch.serialization",
    "pathlib",
    "Metadata",
    "TensorStorageMetadata",
    "BytesStorageMetadata",
    "ChunkStorageMetadata",
    "TensorProperties",
    "_MEM_FORMAT_ENCODING",
    "MEM_FORMAT_ENCODING",
    "MetadataIndex",
    "StorageMeta",
    "_StorageInfo",
    "Size",
    "_get_layout",
    "PosixPath",
};
static_assert(kWords[static_cast<size_t>(Word::kPosixPathClass)] == "PosixPath");
static_assert(kWords[static_cast<size_t>(Word::kTorchModule)] == "torch");

constexpr std::string_view word_text(Word word) { return kWords[static_cast<size_t>(word)]; }

constexpr std::optional<Word> find_word(std::string_view text) {
  for (size_t i = 0; i < kWords.size(); ++i) {
    if (kWords[i] == text) return static_cast<Word>(i);
  }
  return std::nullopt;
}

// A class or function that the format names, as module and name.
enum class Class : uint8_t {
  kMetadata,
  kTensorStorage,
  kBytesStorage,
  kChunk,
  kProperties,
  kMemoryFormat,
  kIndex,
  kStorageMeta,
  kStorageInfo,
  kSize,
  kGetLayout,
  kPosixPath,
  kOldProperties,    // torch 2.1 and 2.2
  kOldMemoryFormat,  // torch 2.1 and 2.2
};

struct ClassName {
  Word module, name;
};
inline constexpr std::array<ClassName, 14> kClassNames = {{
    {Word::kMetadataModule, Word::kMetadataClass},
    {Word::kMetadataModule, Word::kTensorStorageClass},
    {Word::kMetadataModule, Word::kBytesStorageClass},
    {Word::kMetadataModule, Word::kChunkClass},
    {Word::kMetadataModule, Word::kPropertiesClass},
    {Word::kMetadataModule, Word::kMemoryFormatClass},
    {Word::kMetadataModule, Word::kIndexClass},
    {Word::kMetadataModule, Word::kStorageMetaClass},
    {Word::kFilesystemModule, Word::kStorageInfoClass},
    {Word::kTorchModule, Word::kSizeClass},
    {Word::kSerializationModule, Word::kGetLayout},
    {Word::kPathlibModule, Word::kPosixPathClass},
    {Word::kShardedModule, Word::kPropertiesClass},
    {Word::kShardedModule, Word::kOldMemoryFormatClass},
}};
static_assert(kClassNames[static_cast<size_t>(Class::kOldMemoryFormat)].name == Word::kOldMemoryFormatClass);

constexpr ClassName class_name(Class which) { return kClassNames[static_cast<size_t>(which)]; }

constexpr std::optional<Class> find_class(Word module, Word name) {
  for (size_t i = 0; i < kClassNames.size(); ++i) {
    if (kClassNames[i].module == module && kClassNames[i].name == name) return static_cast<Class>(i);
  }
  return std::nullopt;
}

}  // namespace milepost::dcp
