// Writing JSON byte for byte as the peers do.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace milepost {

// Which characters are written as escapes, apart from quotes, backslashes and the control characters below
// U+0020.
enum class JsonEscapes : uint8_t {
  kFewest,   // none: serde_json, hence the safetensors library
  kNonAscii  // U+007F and everything above, as \uXXXX: Python's json
};

// The code point at `*position`, which moves past it; -1 for bytes that are not UTF-8 (overlong forms and
// surrogates included).
int32_t decode_utf8(std::string_view text, size_t* position);
bool is_utf8(std::string_view text);

// Appends `text` in quotes. Requires is_utf8(text).
void append_json_string(std::string* out, std::string_view text, JsonEscapes escapes);

}  // namespace milepost
