// Numbers and texts as Python reads and writes them, for a command line that people know from Python.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace milepost::config {

// `int(text)`: spaces around, a sign, digits with single underscores between them. Throws ValueError in
// Python's words for anything else, and in ours beyond 64 bits.
int64_t parse_int(std::string_view text);

// `float(text)`: also "inf", "nan", "1_000.5e-3". Throws ValueError in Python's words.
double parse_float(std::string_view text);

// `repr` of a float ("1e-08", "0.9", "10.0") and of a text ('x').
std::string float_repr(double value);
std::string string_repr(std::string_view text);

}  // namespace milepost::config
