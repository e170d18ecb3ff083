#include "milepost/engine/snapshot.h"

#include <cassert>
#include <unordered_set>

namespace milepost {

void SnapshotBuilder::add_tensor(const std::string& name, DType dtype, DimsView shape, const Box& box,
                                 DType saved_as) {
  catalog_.add_tensor(name, dtype, shape);
  plan_.add_tensor(name, saved_as, shape, box);
}

void SnapshotBuilder::add_piece(const Box& piece, Bytes memory) {
  const Catalog::Tensor& tensor = catalog_.tensors().back();
  const auto size = static_cast<int64_t>(memory.size());
  assert(dtype_bytes(tensor.dtype, piece.num_elements()) == size);
  const std::string name = tensor.name + "#" + std::to_string(tensor.num_chunks);
  const uint32_t file = catalog_.add_file(name, size);
  catalog_.add_chunk(piece.offsets, piece.sizes, {0, size, file, Location::kRowMajor});
  files_.push_back(std::make_shared<MemorySource>(memory, name));
}

void SnapshotBuilder::add_object(const std::string& name, const pickle::Value* value) {
  catalog_.add_object(name);
  plan_.add_object(name);
  objects_.push_back(value);
}

Snapshot SnapshotBuilder::finish() && {
  const auto document = std::make_shared<const pickle::Document>(values_.finish(values_.list(objects_)));
  std::vector<ObjectValue> objects;
  for (int64_t i = 0; i < document->root().size(); ++i) {
    objects.push_back({document, &document->root().item(i), nullptr});
  }
  return {Checkpoint::in_memory(std::move(catalog_), std::move(files_), std::move(objects)),
          std::move(plan_)};
}

std::vector<std::string> order_of_proposals(const std::vector<LocalPlan>& plans) {
  std::vector<std::string> names;
  std::unordered_set<std::string> seen;
  for (const LocalPlan& plan : plans) {
    for (size_t i = 0; i < plan.names().size(); ++i) {
      std::string name(plan.names()[static_cast<int32_t>(i)]);
      if (seen.insert(name).second) names.push_back(std::move(name));
    }
  }
  return names;
}

}  // namespace milepost
