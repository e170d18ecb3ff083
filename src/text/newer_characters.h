// Characters that are newer than the Unicode tables of our libraries.
//
// The `tokenizers` package knows Unicode 16, PCRE2 10.42 Unicode 14 and ICU 72 Unicode 15. Before a text is
// matched or a character is classified, each newer character is replaced by an older one of the same general
// category and the same length in UTF-8, so that offsets stay. Its spelling in ids is not touched.
#pragma once

#include <string>
#include <string_view>

namespace milepost::text {

// `c`, or the older character that stands in for it.
char32_t stand_in(char32_t c);

// `text` with stand-ins: itself when it has no newer characters, else a view of `*buffer`, which is replaced.
// Cost: a nanosecond for 8 bytes of ASCII, and for each other character.
std::string_view with_stand_ins(std::string_view text, std::string* buffer);

}  // namespace milepost::text
