// Memory that a thread keeps between calls of a kernel: grows to the largest size asked for, aligned for any
// vector. What was in it is not kept when it grows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

namespace milepost::train {

class Scratch {
 public:
  // At least `count` elements; valid until the next call on this object. Throws std::bad_alloc.
  template <class T>
  T* get(int64_t count) {
    const size_t size_bytes = (static_cast<size_t>(count) * sizeof(T) + 63) / 64 * 64;
    if (size_bytes > capacity_bytes_) {
      memory_.reset();
      capacity_bytes_ = 0;
      memory_.reset(std::aligned_alloc(64, size_bytes));
      if (memory_ == nullptr) throw std::bad_alloc();
      capacity_bytes_ = size_bytes;
    }
    return static_cast<T*>(memory_.get());
  }

 private:
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  std::unique_ptr<void, Free> memory_;
  size_t capacity_bytes_ = 0;
};

}  // namespace milepost::train
