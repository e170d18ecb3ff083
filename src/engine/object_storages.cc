#include "engine/object_storages.h"

#include "milepost/base/error.h"

namespace milepost {

ObjectStorages::ObjectStorages(const ObjectValue& object, pickle::Builder& builder, int64_t first)
    : archive_(object.archive), first_(first) {
  std::unordered_map<std::string, std::string> names;
  copy_ = builder.copy(*object.value, [&](std::string_view key) {
    const auto [it, added] = names.try_emplace(std::string(key));
    if (added) {
      it->second = std::to_string(first_ + static_cast<int64_t>(old_keys_.size()));
      old_keys_.emplace_back(key);
    }
    return it->second;
  });
}

std::shared_ptr<const ByteSource> ObjectStorages::open(size_t index) const {
  if (archive_ == nullptr)
    throw FormatError(ErrorCode::kUnsupported, "the entry holds a tensor whose bytes are not known");
  return torch_zip::open_storage(archive_, old_keys_[index]);
}

std::vector<torch_zip::StorageBytes> ObjectStorages::load(std::vector<ByteVector>* memory) const {
  int64_t budget = int64_t{1} << 30;
  std::vector<torch_zip::StorageBytes> out;
  memory->reserve(old_keys_.size());
  for (size_t i = 0; i < old_keys_.size(); ++i) {
    memory->push_back(read_all(*open(i), budget));
    budget -= static_cast<int64_t>(memory->back().size());
    out.push_back({std::to_string(first_ + static_cast<int64_t>(i)), memory->back()});
  }
  return out;
}

}  // namespace milepost
