// Checkpoint: one opened checkpoint of any format, seen as a Catalog, with what is needed to fetch its bytes.
//
// `open` looks at what lies at the path: a folder with `.metadata` (or `__R.metadata`) is DCP, one with
// `model.safetensors.index.json` or `*.safetensors` is safetensors (an index decides over stray files), a
// `.safetensors` file is safetensors, any other file is tried as torch.save. Nothing but indexes and headers
// is read.
//
// Threads: all const members from any thread. Ownership: a Checkpoint shares its files with the readers made
// from it; a memory checkpoint only looks at the caller's memory, which must outlive it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "milepost/base/bytes.h"
#include "milepost/catalog/key_map.h"
#include "milepost/format/pickle.h"
#include "milepost/storage/storage.h"

namespace milepost {

enum class CheckpointFormat : uint8_t { kDcp, kSafetensors, kTorchSave, kMemory };
std::string_view format_name(CheckpointFormat format);  // "dcp", "safetensors", "torch", "memory"

struct OpenOptions {
  int64_t rank = -1;  // DCP with rank-local metadata: whose `__R.metadata` to read
};

// A decoded object entry. `value` belongs to `document`.
struct ObjectValue {
  std::shared_ptr<const pickle::Document> document;
  const pickle::Value* value = nullptr;
  // Tensors inside the value refer to these by storage key; null when there are none.
  std::shared_ptr<const ByteSource> archive;
};

class Checkpoint {
 public:
  virtual ~Checkpoint() = default;

  // Throws StorageError kNotFound (nothing there, or a folder without a checkpoint: says what it holds),
  // FormatError (damaged, refused), ValueError (remote scheme).
  static std::shared_ptr<const Checkpoint> open(std::string_view path_or_uri,
                                                const OpenOptions& options = {});
  static std::shared_ptr<const Checkpoint> open(const StorageLocation& location,
                                                const OpenOptions& options = {});

  // A checkpoint in memory: file i of `catalog` is `files[i]`; its objects are `objects[i]` (owned by
  // `documents`).
  static std::shared_ptr<const Checkpoint> in_memory(Catalog catalog,
                                                     std::vector<std::shared_ptr<const ByteSource>> files,
                                                     std::vector<ObjectValue> objects);

  virtual CheckpointFormat format() const = 0;
  virtual const std::string& path() const = 0;
  virtual const Catalog& catalog() const = 0;
  virtual const std::vector<std::string>& warnings() const = 0;
  // What a person would like to know of the format: ("writer", "torch >= 2.9"), ("metadata version",
  // "1.0.0"), ...
  virtual const std::vector<std::pair<std::string, std::string>>& details() const = 0;

  // The bytes of catalog().files()[file], opened on first use; at most 256 stay open. Throws FormatError
  // kMissingFile when it is absent.
  virtual std::shared_ptr<const ByteSource> open_file(uint32_t file) const = 0;

  // The nested object that a torch.save file holds, tensors as kTensor; nullptr for other formats.
  virtual const pickle::Value* nested() const = 0;

  // Decodes an object entry; unknown globals are refused (kRefusedGlobal with the entry's key) unless
  // `keep_unknown_globals`.
  virtual ObjectValue read_object(int64_t object, bool keep_unknown_globals = false) const = 0;

  // For a checkpoint made by derive(): what it is derived from and how (both non-null); else both null.
  struct Derivation {
    const std::shared_ptr<const Checkpoint>* source = nullptr;
    const KeyMap* map = nullptr;
  };
  virtual Derivation derivation() const { return {}; }
};

// Whether a key belongs to the model, rather than to optimizer, scheduler, data loader, train state, EMA or
// Milepost itself (spec choices).
bool is_model_key(std::string_view name);

}  // namespace milepost
