#include "format/json_text.h"

#include <fmt/format.h>

#include <iterator>

namespace milepost {
namespace {

constexpr int32_t kInvalid = -1;

void append_unit(std::string* out, int32_t unit) {
  fmt::format_to(std::back_inserter(*out), "\\u{:04x}", unit);
}

// The two-character escape's letter, 0 for none.
char short_escape(int32_t c) {
  constexpr std::string_view kCharacters = "\"\\\b\f\n\r\t", kLetters = "\"\\bfnrt";
  const size_t at = c < 0x80 ? kCharacters.find(static_cast<char>(c)) : std::string_view::npos;
  return at == std::string_view::npos ? '\0' : kLetters[at];
}

// How many characters `text` starts with that every writer leaves as they are.
size_t plain_run(std::string_view text) {
  size_t length = 0;
  while (length < text.size()) {
    const auto c = static_cast<uint8_t>(text[length]);
    if (c < 0x20 || c >= 0x7f || c == '"' || c == '\\') break;
    ++length;
  }
  return length;
}

}  // namespace

int32_t decode_utf8(std::string_view text, size_t* position) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte((*position)++);
  if (lead < 0x80) return lead;
  const int extra = lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : 1;
  if (lead < 0xc2 || lead > 0xf4) return kInvalid;
  int32_t code = lead & (0x3f >> extra);
  for (int i = 0; i < extra; ++i) {
    if (*position == text.size() || (byte(*position) & 0xc0) != 0x80) return kInvalid;
    code = code << 6 | (byte((*position)++) & 0x3f);
  }
  constexpr int32_t kSmallest[] = {0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xd800 && code < 0xe000;
  return code < kSmallest[extra] || code > 0x10ffff || surrogate ? kInvalid : code;
}

bool is_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    i += plain_run(text.substr(i));
    if (i < text.size() && decode_utf8(text, &i) == kInvalid) return false;
  }
  return true;
}

void append_json_string(std::string* out, std::string_view text, JsonEscapes escapes) {
  out->push_back('"');
  for (size_t i = 0; i < text.size();) {
    const size_t run = plain_run(text.substr(i));
    out->append(text, i, run);
    i += run;
    if (i == text.size()) break;
    const size_t start = i;
    const int32_t code = decode_utf8(text, &i);
    if (const char letter = short_escape(code); letter != 0) {
      out->push_back('\\');
      out->push_back(letter);
    } else if (code >= 0x20 && escapes == JsonEscapes::kFewest) {
      out->append(text.substr(start, i - start));
    } else if (code < 0x10000) {
      append_unit(out, code);
    } else {
      append_unit(out, 0xd800 + ((code - 0x10000) >> 10));
      append_unit(out, 0xdc00 + ((code - 0x10000) & 0x3ff));
    }
  }
  out->push_back('"');
}

}  // namespace milepost
