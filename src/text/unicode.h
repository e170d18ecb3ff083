// Character properties and normal forms, by ICU. "As Rust" means the standard library and the regex crate of
// Rust, which the `tokenizers` package is written in.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace milepost::text {

bool is_whitespace(char32_t c);   // White_Space: char::is_whitespace, and \s of the regex crate
bool is_word(char32_t c);         // \w of the regex crate: letters, marks, digits, connectors, joiners
bool is_numeric(char32_t c);      // Nd, Nl, No: char::is_numeric
bool is_punctuation(char32_t c);  // P* as of Unicode 8, and all that is neither letter nor digit in ASCII
void append_lowercase(char32_t c, std::string* out);  // char::to_lowercase: without regard to what is around

enum class NormalForm : uint8_t { kNfc, kNfd, kNfkc, kNfkd };

// `text` in that form; `out` is replaced. Returns false, and leaves `out` alone, when it is in that form
// already as far as can be told cheaply. Requires valid UTF-8.
bool to_normal_form(NormalForm form, std::string_view text, std::string* out);

// Lengths in bytes of the whitespace at both ends.
size_t leading_whitespace(std::string_view text);
size_t trailing_whitespace(std::string_view text);
bool starts_with_word(std::string_view text);
bool ends_with_word(std::string_view text);

}  // namespace milepost::text
