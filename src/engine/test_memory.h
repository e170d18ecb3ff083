// For tests of the engine: checkpoints in memory, made entry by entry.
#pragma once

#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "milepost/engine/checkpoint.h"

namespace milepost {

class MemoryCheckpoint {
 public:
  // One chunk in a file of its own, named after the tensor.
  MemoryCheckpoint& tensor(const std::string& name, DType dtype, DimsView shape,
                           std::shared_ptr<const ByteSource> bytes) {
    const uint32_t file = catalog.add_file(name, bytes->size());
    catalog.add_tensor(name, dtype, shape);
    catalog.add_chunk(Dims(shape.size(), 0), shape, {0, bytes->size(), file, Location::kRowMajor});
    files.push_back(std::move(bytes));
    return *this;
  }
  template <typename T>
  MemoryCheckpoint& tensor(const std::string& name, DType dtype, DimsView shape,
                           const std::vector<T>& values) {
    const auto bytes = std::as_bytes(std::span(values));
    return tensor(name, dtype, shape,
                  std::make_shared<MemorySource>(ByteVector(bytes.begin(), bytes.end()), name));
  }
  MemoryCheckpoint& number(const std::string& name, int64_t value) {
    pickle::Builder builder;
    auto document = std::make_shared<const pickle::Document>(builder.finish(builder.integer(value)));
    const pickle::Value* root = &document->root();
    catalog.add_object(name);
    objects.push_back({std::move(document), root, nullptr});
    return *this;
  }
  // Call once: gives away what was made.
  std::shared_ptr<const Checkpoint> open() {
    return Checkpoint::in_memory(std::move(catalog), std::move(files), std::move(objects));
  }

  Catalog catalog;
  std::vector<std::shared_ptr<const ByteSource>> files;
  std::vector<ObjectValue> objects;
};

}  // namespace milepost
