// What fills the payloads of an output file: boxes of source tensors (cast where asked), ranges of source
// files as they are, bytes made in memory.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "milepost/engine/reader.h"

namespace milepost {

// One payload of a FileImage. 16 bytes, since there may be one a chunk.
struct PayloadRef {
  enum class Kind : uint8_t { kTensor, kFileRange, kOwned };
  Kind kind = Kind::kTensor;
  int32_t item = 0;    // index into views, ranges or owned bytes of the PayloadSource
  int64_t chunk = -1;  // kTensor: chunk of the target catalog whose box is wanted; -1: the whole tensor
};

// A target tensor: which source tensor it is made of and what it is cast to.
struct TensorView {
  int64_t source = 0;  // tensor of the source catalog
  DType dtype = DType::kFloat32;
  int64_t target = -1;  // tensor of the target catalog, where chunks are looked up
};

// Threads: shared; each worker fills through a PayloadFiller of its own. Ownership: looks at `boxes`, which
// must outlive it.
struct PayloadSource {
  std::shared_ptr<const Checkpoint> checkpoint;
  const Catalog* boxes = nullptr;
  std::vector<TensorView> views;
  std::vector<Location> ranges;
  std::vector<ByteVector> owned;

  int64_t length(const PayloadRef& payload) const;  // bytes
  Box box(const PayloadRef& payload) const;         // kTensor
};

class PayloadFiller {
 public:
  explicit PayloadFiller(const PayloadSource& source);

  // Writes bytes [begin, end) of the payload to `dst`; any bounds, also inside an element.
  void fill(const PayloadRef& payload, int64_t begin, int64_t end, std::byte* dst);
  // The bytes themselves where they lie in memory already: pointer and how many follow, else {nullptr, 0}.
  std::pair<const std::byte*, int64_t> view(const PayloadRef& payload, int64_t begin);

 private:
  void fill_tensor(const PayloadRef& payload, int64_t begin, int64_t end, std::byte* dst);
  void fill_elements(const TensorView& view, const Box& box, int64_t first, int64_t last, std::byte* dst);

  const PayloadSource* source_;
  TensorReader reader_;
  AlignedBuffer scratch_;  // source elements of a cast
};

}  // namespace milepost
