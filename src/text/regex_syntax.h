// Patterns of Oniguruma rewritten for PCRE2.
#pragma once

#include <string>
#include <string_view>

namespace milepost::text {

// A pattern for PCRE2 (UTF, UCP, MULTILINE, newline LF) that matches what Oniguruma, as the `tokenizers`
// package uses it, matches with `pattern`. Throws FormatError kUnsupported for what is not known to have an
// equal (nested classes, absent groups, ...), with the offset in the pattern in its text. What is wrong in
// both languages passes, for PCRE2 to refuse.
std::string pcre2_pattern(std::string_view pattern);

}  // namespace milepost::text
