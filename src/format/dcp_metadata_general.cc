// `.metadata` by way of the pickle machine's value tree (spec dcp-format, sections 2 and 11):
//
// 1. `Metadata` has state_dict_metadata (key -> TensorStorageMetadata or BytesStorageMetadata), planner_data
// (key ->
//    path, or None, or what some other planner left there), storage_data (MetadataIndex -> _StorageInfo),
//    storage_meta and version; the last two came with torch 2.4 and 2.7, and an absent attribute means its
//    default.
// 2. A tensor has properties (state: a tuple whose first item is the dtype, or a dict), a size and chunks
// with offsets
//    and sizes.
// 3. storage_data says where the bytes of (fqn, offset) lie; objects have no offset. `index` there is only a
// hint.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "format/dcp_metadata_checks.h"
#include "format/dcp_names.h"
#include "milepost/base/checked_math.h"
#include "milepost/base/error.h"
#include "milepost/format/dcp.h"
#include "milepost/format/pickle.h"

namespace milepost::dcp {
namespace {

using pickle::Kind;
using pickle::Value;

constexpr int64_t kMaxMetadataBytes = int64_t{8} << 30;
constexpr const char* kDamaged = "the metadata is damaged or not torch's: restore it from another copy";

[[noreturn]] void fail(ErrorCode code, std::string what, std::string_view key = {}) {
  FormatError error(code, std::move(what), kDamaged);
  error.set_key(key);
  throw error;
}

std::string describe(const Value* value) {
  if (value == nullptr) return "nothing";
  switch (value->kind()) {
    case Kind::kNone:
      return "None";
    case Kind::kBool:
      return "a bool";
    case Kind::kInt:
    case Kind::kBigInt:
      return "an integer";
    case Kind::kFloat:
      return "a float";
    case Kind::kString:
      return "a text";
    case Kind::kBytes:
      return "bytes";
    case Kind::kList:
      return "a list";
    case Kind::kTuple:
      return "a tuple";
    case Kind::kDict:
      return "a dict";
    case Kind::kSize:
      return "a torch.Size";
    case Kind::kDType:
      return "a dtype";
    case Kind::kObject:
    case Kind::kGlobal:
    case Kind::kOpaque:
      return printable(value->class_name());
    default:
      return "something else";
  }
}

[[noreturn]] void fail_kind(std::string_view what, std::string_view wanted, const Value* value) {
  fail(ErrorCode::kBadFormat, fmt::format("{} is {} where {} was expected", what, describe(value), wanted));
}

bool is_instance(const Value& value, Class which) {
  if (value.kind() != Kind::kObject) return false;
  const std::string_view module = word_text(class_name(which).module),
                         name = word_text(class_name(which).name);
  const std::string_view text = value.class_name();
  return text.size() == module.size() + 1 + name.size() && text.starts_with(module) && text.ends_with(name);
}

// An attribute of an instance, nullptr when it is absent.
const Value* attribute(const Value& object, Word name) {
  const Value* state = object.state();
  return state != nullptr && state->kind() == Kind::kDict ? state->find(word_text(name)) : nullptr;
}

bool is_absent(const Value* value) { return value == nullptr || value->is_none(); }

std::string_view text(const Value* value, Word what) {
  if (value == nullptr || value->kind() != Kind::kString) fail_kind(word_text(what), "a text", value);
  return value->text();
}

int64_t byte_count(const Value* value, Word what) {
  if (value == nullptr || value->kind() != Kind::kInt) fail_kind(word_text(what), "an integer", value);
  if (value->as_int() < 0) {
    fail(ErrorCode::kOutOfBounds, fmt::format("{} is {}", word_text(what), value->as_int()));
  }
  return value->as_int();
}

Dims dims(const Value* value, Word what) {
  if (value == nullptr || (value->kind() != Kind::kSize && value->kind() != Kind::kTuple)) {
    fail_kind(word_text(what), "a torch.Size", value);
  }
  if (value->size() > static_cast<int64_t>(kMaxDims)) {
    fail(ErrorCode::kTooLarge,
         fmt::format("{} has {} dimensions, torch allows {}", word_text(what), value->size(), kMaxDims));
  }
  Dims result;
  for (int64_t i = 0; i < value->size(); ++i) {
    const Value& item = value->item(i);
    if (item.kind() != Kind::kInt) fail_kind(word_text(what), "integers", &item);
    if (item.as_int() < 0) {
      fail(ErrorCode::kOutOfBounds, fmt::format("{} holds {}", word_text(what), item.as_int()));
    }
    result.push_back(item.as_int());
  }
  return result;
}

DType dtype_of_properties(const Value* properties) {
  if (properties == nullptr ||
      (!is_instance(*properties, Class::kProperties) && !is_instance(*properties, Class::kOldProperties))) {
    fail_kind("properties", "TensorProperties", properties);
  }
  const Value* state = properties->state();
  const Value* dtype = nullptr;
  if (state != nullptr && state->kind() == Kind::kTuple && state->size() > 0) dtype = &state->item(0);
  if (state != nullptr && state->kind() == Kind::kDict) dtype = state->find("dtype");
  if (dtype == nullptr || dtype->kind() != Kind::kDType) fail_kind("the tensor's dtype", "a dtype", dtype);
  return dtype->dtype();
}

class TreeReader {
 public:
  explicit TreeReader(int64_t file_bytes) : budget_(file_bytes) {}
  Metadata read(const Value& root);

 private:
  void read_entries(const Value* entries);
  void read_tensor(std::string_view name, const Value& entry);
  void read_chunk(const Value& chunk);
  void read_paths(const Value& paths);
  void read_storage(const Value* storage);
  void read_storage_entry(const Value& index, const Value& info);
  Location read_location(const Value& info);
  void read_storage_meta(const Value& meta);
  void check_all_located() const;
  void spend(size_t bytes);

  Budget budget_;
  Metadata metadata_;
  std::vector<std::string> order_;
  using ChunkKey = std::pair<int64_t, std::vector<int64_t>>;  // tensor and offsets
  std::map<ChunkKey, int64_t> chunks_;
  Strays stray_storage_, stray_paths_;
};

void TreeReader::spend(size_t bytes) {
  if (budget_.spend(bytes)) return;
  fail(ErrorCode::kTooLarge,
       fmt::format("its texts and chunks, as often as they are referred to, take more than {} times its size",
                   Budget::kTimes));
}

Metadata TreeReader::read(const Value& root) {
  if (!is_instance(root, Class::kMetadata)) fail_kind("the pickle", "a DCP Metadata object", &root);
  read_entries(attribute(root, Word::kStateDictMetadata));
  const Value* paths = attribute(root, Word::kPlannerData);
  const bool has_paths = paths != nullptr && paths->kind() == Kind::kDict;
  if (has_paths) read_paths(*paths);
  read_storage(attribute(root, Word::kStorageData));
  check_all_located();

  const Value* meta = attribute(root, Word::kStorageMeta);
  if (!is_absent(meta)) read_storage_meta(*meta);
  const Value* version = attribute(root, Word::kVersionName);
  if (!is_absent(version)) metadata_.version = text(version, Word::kVersionName);
  conclude(stray_storage_, stray_paths_, !is_absent(meta), &metadata_);
  if (!has_paths && !is_absent(paths)) {
    metadata_.warnings.push_back(
        fmt::format("planner_data is {}, not torch's paths: ignored", describe(paths)));
  }
  return std::move(metadata_);
}

void TreeReader::read_entries(const Value* entries) {
  if (entries == nullptr || entries->kind() != Kind::kDict) {
    fail_kind("state_dict_metadata", "a dict", entries);
  }
  bool has_object = false, is_mixed = false;
  for (int64_t i = 0; i < entries->size(); ++i) {
    const std::string_view name = text(&entries->key(i), Word::kStateDictMetadata);
    const Value& entry = entries->value(i);
    try {
      if (is_instance(entry, Class::kTensorStorage)) {
        read_tensor(name, entry);
        is_mixed |= has_object;
      } else if (is_instance(entry, Class::kBytesStorage)) {
        metadata_.catalog.add_object(std::string(name));
        has_object = true;
      } else {
        fail_kind("the entry", "TensorStorageMetadata or BytesStorageMetadata", &entry);
      }
    } catch (Error& error) {
      error.set_key(name).set_hint(kDamaged);
      throw;
    }
    order_.emplace_back(name);
  }
  if (is_mixed) metadata_.catalog.set_order(std::move(order_));
}

void TreeReader::read_tensor(std::string_view name, const Value& entry) {
  const DType dtype = dtype_of_properties(attribute(entry, Word::kProperties));
  metadata_.catalog.add_tensor(std::string(name), dtype, dims(attribute(entry, Word::kSize), Word::kSize));
  tensor_bytes(metadata_.catalog.tensors().back());
  const Value* chunks = attribute(entry, Word::kChunks);
  if (chunks == nullptr || chunks->kind() != Kind::kList) fail_kind("chunks", "a list", chunks);
  for (int64_t i = 0; i < chunks->size(); ++i) read_chunk(chunks->item(i));
}

void TreeReader::read_chunk(const Value& chunk) {
  if (!is_instance(chunk, Class::kChunk)) fail_kind("a chunk", "ChunkStorageMetadata", &chunk);
  const Catalog::Tensor& tensor = metadata_.catalog.tensors().back();
  const Box box{dims(attribute(chunk, Word::kOffsets), Word::kOffsets),
                dims(attribute(chunk, Word::kSizes), Word::kSizes)};
  if (box.offsets.size() != tensor.shape.size() || !box_fits(box, tensor.shape)) {
    fail(ErrorCode::kOutOfBounds,
         fmt::format("the chunk at {} of sizes {} leaves the tensor of shape {}", dims_text(box.offsets),
                     dims_text(box.sizes), dims_text(tensor.shape)));
  }
  spend(sizeof(Location) + tensor.shape.size() * 2 * sizeof(int64_t));
  const auto index = static_cast<int64_t>(metadata_.catalog.tensors().size()) - 1;
  ChunkKey key(index, std::vector<int64_t>(box.offsets.begin(), box.offsets.end()));
  if (!chunks_.emplace(std::move(key), metadata_.catalog.num_chunks()).second) {
    fail(ErrorCode::kDuplicate, fmt::format("two chunks have the offsets {}", dims_text(box.offsets)));
  }
  metadata_.catalog.add_chunk(box.offsets, box.sizes);
}

// Other planners may keep anything here; what is not a path is left out with a warning.
void TreeReader::read_paths(const Value& paths) {
  metadata_.catalog.set_has_paths(true);
  Strays odd;
  for (int64_t i = 0; i < paths.size(); ++i) {
    const Value& key = paths.key(i);
    const Value& elements = paths.value(i);
    const bool is_text = key.kind() == Kind::kString;
    const std::string_view name = is_text ? key.text() : std::string_view("(no text)");
    bool is_path = is_text && elements.kind() == Kind::kTuple && elements.size() > 0;
    KeyPath path;
    for (int64_t k = 0; is_path && k < elements.size(); ++k) {
      const Value& element = elements.item(k);
      if (element.kind() == Kind::kString) {
        spend(element.text().size());
        path.emplace_back(std::string(element.text()));
      } else if (element.kind() == Kind::kInt && element.as_int() >= 0) {
        path.emplace_back(element.as_int());
      } else {
        is_path = false;
      }
    }
    if (!is_path) {
      odd.add(name);
    } else if (metadata_.catalog.find_tensor(name) || metadata_.catalog.find_object(name)) {
      metadata_.catalog.set_path(name, std::move(path));
    } else {
      stray_paths_.add(name);
    }
  }
  if (odd.count > 0) {
    metadata_.warnings.push_back(fmt::format("{} entries of planner_data are not paths, first '{}': ignored",
                                             odd.count, printable(odd.first)));
  }
}

void TreeReader::read_storage(const Value* storage) {
  if (storage == nullptr || storage->kind() != Kind::kDict) fail_kind("storage_data", "a dict", storage);
  for (int64_t i = 0; i < storage->size(); ++i) {
    const Value& index = storage->key(i);
    if (!is_instance(index, Class::kIndex)) fail_kind("a key of storage_data", "MetadataIndex", &index);
    const Value* name = attribute(index, Word::kFqn);
    try {
      read_storage_entry(index, storage->value(i));
    } catch (Error& error) {
      if (name != nullptr && name->kind() == Kind::kString) error.set_key(name->text());
      throw;
    }
  }
}

void TreeReader::read_storage_entry(const Value& index, const Value& info) {
  const std::string_view name = text(attribute(index, Word::kFqn), Word::kFqn);
  const Value* offset = attribute(index, Word::kOffset);
  spend(name.size());
  const Location location = read_location(info);
  Catalog& catalog = metadata_.catalog;
  if (const auto object = catalog.find_object(name); object && is_absent(offset)) {
    if (catalog.objects()[static_cast<size_t>(*object)].location.file != Location::kNoFile) {
      fail(ErrorCode::kDuplicate, "storage_data has two entries for this object");
    }
    catalog.set_object_location(*object, location);
    return;
  }
  if (const auto tensor = catalog.find_tensor(name); tensor && !is_absent(offset)) {
    const Dims offsets = dims(offset, Word::kOffset);
    const auto chunk = chunks_.find({*tensor, std::vector<int64_t>(offsets.begin(), offsets.end())});
    if (chunk != chunks_.end()) {
      if (catalog.chunk_location(chunk->second).file != Location::kNoFile) {
        fail(ErrorCode::kDuplicate,
             fmt::format("storage_data has two entries for the chunk at {}", dims_text(offsets)));
      }
      catalog.set_chunk_location(chunk->second, location);
      return;
    }
  }
  stray_storage_.add(name);
}

Location TreeReader::read_location(const Value& info) {
  if (!is_instance(info, Class::kStorageInfo)) fail_kind("a value of storage_data", "_StorageInfo", &info);
  const Value* descriptors = attribute(info, Word::kTransformDescriptors);
  if (!is_absent(descriptors)) {
    if (descriptors->kind() != Kind::kList && descriptors->kind() != Kind::kTuple) {
      fail_kind("transform_descriptors", "a list", descriptors);
    }
    if (descriptors->size() > 0) {
      const std::string_view name = text(&descriptors->item(0), Word::kTransformDescriptors);
      throw FormatError(
          ErrorCode::kUnsupported,
          fmt::format("its bytes are transformed by '{}', which is not supported", printable(name)),
          "save it again with torch, without stream extensions");
    }
  }
  const std::string_view path = text(attribute(info, Word::kRelativePath), Word::kRelativePath);
  spend(path.size());
  if (!is_inside_folder(path)) {
    fail(ErrorCode::kPathEscape,
         fmt::format("relative_path '{}' is not a plain path inside the checkpoint's folder",
                     printable(path)));
  }
  Location location;
  location.layout = Location::kTorchItem;
  location.offset = byte_count(attribute(info, Word::kOffset), Word::kOffset);
  location.length = byte_count(attribute(info, Word::kLength), Word::kLength);
  int64_t end;
  if (!checked_add(location.offset, location.length, &end)) {
    fail(ErrorCode::kOutOfBounds,
         fmt::format("offset {} and length {} leave any file", location.offset, location.length));
  }
  location.file = metadata_.catalog.add_file(std::string(path), -1);
  return location;
}

void TreeReader::read_storage_meta(const Value& meta) {
  if (!is_instance(meta, Class::kStorageMeta)) fail_kind("storage_meta", "StorageMeta", &meta);
  const Value* checkpoint_id = attribute(meta, Word::kCheckpointId);
  if (!is_absent(checkpoint_id)) {
    if (checkpoint_id->kind() != Kind::kString && checkpoint_id->kind() != Kind::kPath) {
      fail_kind("checkpoint_id", "a path", checkpoint_id);
    }
    metadata_.checkpoint_id = checkpoint_id->text();
  }
  const Value* save_id = attribute(meta, Word::kSaveId);
  if (!is_absent(save_id)) metadata_.save_id = text(save_id, Word::kSaveId);
}

// Empty boxes may be left out of storage_data (section 13): nothing is ever read from them.
void TreeReader::check_all_located() const {
  const Catalog& catalog = metadata_.catalog;
  for (const Catalog::Tensor& tensor : catalog.tensors()) {
    for (int64_t c = tensor.first_chunk; c < tensor.first_chunk + tensor.num_chunks; ++c) {
      if (catalog.chunk_location(c).file != Location::kNoFile) continue;
      const Box box = catalog.chunk_box(tensor, c);
      if (box.empty()) continue;
      fail(ErrorCode::kMissingKey,
           fmt::format("storage_data has no entry for the chunk at {}", dims_text(box.offsets)), tensor.name);
    }
  }
  for (const Catalog::Object& object : catalog.objects()) {
    if (object.location.file == Location::kNoFile) {
      fail(ErrorCode::kMissingKey, "storage_data has no entry for this object", object.name);
    }
  }
}

}  // namespace

Metadata read_metadata_general(const ByteSource& source) {
  try {
    const ByteVector bytes = read_all(source, kMaxMetadataBytes);
    const pickle::Document document =
        pickle::read(bytes, {.profile = pickle::Profile::kDcpMetadata}, source.name());
    return TreeReader(source.size()).read(document.root());
  } catch (Error& error) {
    error.set_path(source.name());
    throw;
  }
}

}  // namespace milepost::dcp
