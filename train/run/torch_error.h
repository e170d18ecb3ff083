// What libtorch throws, as errors that a person can read.
#pragma once

#include <c10/util/Exception.h>

namespace milepost::train {

// Throws std::bad_alloc where the allocator found no memory, else std::runtime_error with the error's text
// without the addresses of the calls that led to it.
[[noreturn]] void throw_readable(const c10::Error& error);

}  // namespace milepost::train
