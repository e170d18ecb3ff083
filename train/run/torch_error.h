// What libtorch throws, as errors that a person can read.
#pragma once

#include <c10/util/Exception.h>

#include <exception>
#include <string>

namespace milepost::train {

// An error's text; libtorch's without the addresses of the calls that led to it.
std::string readable_text(const std::exception& error);

// Throws std::bad_alloc where the allocator found no memory, else std::runtime_error with the readable text.
[[noreturn]] void throw_readable(const c10::Error& error);

}  // namespace milepost::train
