#include "train/run/torch_error.h"

#include <new>
#include <stdexcept>
#include <string>

#include "train/torch.h"

namespace milepost::train {

std::string readable_text(const std::exception& error) {
  const auto* of_torch = dynamic_cast<const c10::Error*>(&error);
  return of_torch == nullptr ? error.what() : of_torch->what_without_backtrace();
}

void throw_readable(const c10::Error& error) {
  const std::string text = readable_text(error);
  // The CPU's allocator has no type of error of its own.
  const bool is_memory = dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr ||
                         text.find("DefaultCPUAllocator") != std::string::npos;
  if (is_memory) throw std::bad_alloc();
  throw std::runtime_error(text);
}

}  // namespace milepost::train
