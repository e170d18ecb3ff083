// SegmentedVector: an append-only array in blocks, for indexes of millions of small records.
//
// Growing never copies or doubles, so peak and retained memory are both within one block of what is stored;
// addresses stay valid.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace milepost {

// T: trivially copyable. Threads: readers may share it once nothing is appended any more.
template <typename T, size_t kBlock = 65536 / sizeof(T) * 4>
class SegmentedVector {
 public:
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

  void push_back(const T& value) {
    if (size_ == blocks_.size() * kBlock) blocks_.push_back(std::make_unique_for_overwrite<T[]>(kBlock));
    blocks_[size_ / kBlock][size_ % kBlock] = value;
    ++size_;
  }
  void resize(size_t size, const T& fill) {
    while (size_ < size) push_back(fill);
    size_ = size;
  }
  T& operator[](size_t i) { return blocks_[i / kBlock][i % kBlock]; }
  const T& operator[](size_t i) const { return blocks_[i / kBlock][i % kBlock]; }
  size_t memory_bytes() const {
    return blocks_.size() * kBlock * sizeof(T) + blocks_.capacity() * sizeof(void*);
  }

 private:
  std::vector<std::unique_ptr<T[]>> blocks_;
  size_t size_ = 0;
};

}  // namespace milepost
