// Objects that hold tensors, such as a tuple (tensor, 9): their storages renumbered for a new archive.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "milepost/engine/checkpoint.h"
#include "milepost/format/pickle.h"
#include "milepost/format/torch_zip.h"

namespace milepost {

// A copy of an object's value whose storages are called first, first + 1, ... in order of first use.
// `builder` owns the copy.
class ObjectStorages {
 public:
  ObjectStorages(const ObjectValue& object, pickle::Builder& builder, int64_t first = 0);

  const pickle::Value* value() const { return copy_; }
  // The old keys, in the order of the new numbers.
  const std::vector<std::string>& old_keys() const { return old_keys_; }
  std::shared_ptr<const ByteSource> open(size_t index) const;
  // Reads all storages into `memory` and names them for torch_zip::object_item. At most 1 GiB in all
  // (FormatError kTooLarge).
  std::vector<torch_zip::StorageBytes> load(std::vector<ByteVector>* memory) const;

 private:
  std::shared_ptr<const ByteSource> archive_;
  std::vector<std::string> old_keys_;
  int64_t first_;
  const pickle::Value* copy_;
};

}  // namespace milepost
