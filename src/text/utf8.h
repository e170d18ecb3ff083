// UTF-8 and the alphabet of byte-level tokenizers.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "milepost/base/error.h"

namespace milepost::text {

// The offset of the first byte that is not part of valid UTF-8 (overlong forms, surrogates and what lies
// above U+10FFFF are not valid), or npos. Cost: about a nanosecond for 8 bytes of ASCII.
size_t find_invalid_utf8(std::string_view text);

// The error about text that is not UTF-8 from `offset` on.
FormatError invalid_utf8(int64_t offset);

// The offset from which on `text` holds only the beginning of a character, its size when it ends with a whole
// one. Says nothing about validity before.
size_t whole_characters(std::string_view text);

// The code point at `*position`, which moves past it. Requires valid UTF-8 and position < size.
inline char32_t next_code_point(std::string_view text, size_t* position) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[*position + i]); };
  const uint8_t lead = byte(0);
  char32_t c = lead;
  size_t length = 1;
  if (lead >= 0xF0) {
    c = (lead & 0x07u) << 18 | (byte(1) & 0x3Fu) << 12 | (byte(2) & 0x3Fu) << 6 | (byte(3) & 0x3Fu);
    length = 4;
  } else if (lead >= 0xE0) {
    c = (lead & 0x0Fu) << 12 | (byte(1) & 0x3Fu) << 6 | (byte(2) & 0x3Fu);
    length = 3;
  } else if (lead >= 0xC0) {
    c = (lead & 0x1Fu) << 6 | (byte(1) & 0x3Fu);
    length = 2;
  }
  *position += length;
  return c;
}

void append_utf8(char32_t c, std::string* out);

// `bytes` with what is not UTF-8 replaced by U+FFFD, one for each maximal beginning of a character, as
// decoders of the web do.
std::string replace_invalid_utf8(std::string_view bytes);

// Byte-level tokenizers write each byte as one character: printable ASCII and Latin-1 as themselves, the
// other 68 as U+0100 and following, in order.
const std::array<std::string, 256>& byte_characters();
// The byte that a character of that alphabet stands for, -1 for others.
int byte_of_character(char32_t c);

}  // namespace milepost::text
