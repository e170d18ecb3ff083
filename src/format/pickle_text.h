// Texts and long integers as pickles write them. Only the files of `pickle` include this.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "milepost/base/bytes.h"

namespace milepost::pickle {

// Bytes of the longest integer that is read: its decimal text costs the square of its length.
inline constexpr size_t kMaxLongBytes = 1024;

// Whether `text` is UTF-8, lone surrogates allowed.
bool is_utf8(std::string_view text);

// Appends a code point up to 0x10ffff as UTF-8, surrogates as three bytes each.
void append_utf8(std::string* text, uint32_t code_point);

// The code point at `*position` of valid UTF-8; moves on to the next.
uint32_t next_code_point(std::string_view text, size_t* position);

// A text each of whose characters stands for one byte; nullopt when one is above U+00FF.
std::optional<std::string> latin1_bytes(std::string_view utf8);
std::string latin1_text(std::string_view bytes);

// The argument of STRING: a Python literal in quotes, with its escapes undone; nullopt when it is none.
std::optional<std::string> unquote(std::string_view literal);
// The argument of UNICODE: \uXXXX and \UXXXXXXXX, everything else Latin-1; the result is UTF-8.
std::optional<std::string> raw_unicode_unescape(std::string_view text);

// An integer: `value` when it fits, else `decimal`.
struct Long {
  int64_t value = 0;
  std::string decimal;  // empty: value holds it
};
// Two's complement, little-endian, any length up to kMaxLongBytes (requires).
Long long_from_bytes(Bytes bytes);
// Optional sign and digits; nullopt otherwise. Requires: at most 2.5 x kMaxLongBytes characters.
std::optional<Long> long_from_text(std::string_view text);
// The shortest two's complement of a decimal text, which the functions above made.
std::string long_to_bytes(std::string_view decimal);

// A float's text as Python's repr: shortest that reads back the same, "1e+16", "-0.0", "nan".
std::string float_text(double value);

}  // namespace milepost::pickle
