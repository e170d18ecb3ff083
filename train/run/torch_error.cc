#include "train/run/torch_error.h"

#include <new>
#include <stdexcept>
#include <string>

#include "train/torch.h"

namespace milepost::train {

void throw_readable(const c10::Error& error) {
  const std::string text = error.what_without_backtrace();
  // The CPU's allocator has no type of error of its own.
  const bool is_memory = dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr ||
                         text.find("DefaultCPUAllocator") != std::string::npos;
  if (is_memory) throw std::bad_alloc();
  throw std::runtime_error(text);
}

}  // namespace milepost::train
