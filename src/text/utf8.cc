#include "text/utf8.h"

#include <algorithm>
#include <cstring>

namespace milepost::text {
namespace {

// The length of the well-formed character at `at`, or minus the length of its longest well-formed beginning
// (at least 1) when there is none.
int character_at(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return at + i < text.size() ? static_cast<uint8_t>(text[at + i]) : 0; };
  const int lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return -1;
  const int length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  const int second_min = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const int second_max = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  if (byte(1) < second_min || byte(1) > second_max) return -1;
  for (int i = 2; i < length; ++i) {
    if ((byte(static_cast<size_t>(i)) & 0xC0) != 0x80) return -i;
  }
  return length;
}

bool is_byte_character(int byte) {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

struct ByteAlphabet {
  std::array<std::string, 256> characters;
  std::array<int16_t, 0x144> bytes;
};

ByteAlphabet make_byte_alphabet() {
  ByteAlphabet alphabet;
  alphabet.bytes.fill(-1);
  char32_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const char32_t c = is_byte_character(byte) ? static_cast<char32_t>(byte) : next++;
    append_utf8(c, &alphabet.characters[static_cast<size_t>(byte)]);
    alphabet.bytes[c] = static_cast<int16_t>(byte);
  }
  return alphabet;
}

const ByteAlphabet& byte_alphabet() {
  static const ByteAlphabet alphabet = make_byte_alphabet();
  return alphabet;
}

}  // namespace

size_t find_invalid_utf8(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    uint64_t word;
    while (text.size() - at >= sizeof(word)) {
      std::memcpy(&word, text.data() + at, sizeof(word));
      if ((word & 0x8080808080808080u) != 0) break;
      at += sizeof(word);
    }
    if (at == text.size()) break;
    const int length = character_at(text, at);
    if (length < 0) return at;
    at += static_cast<size_t>(length);
  }
  return std::string_view::npos;
}

FormatError invalid_utf8(int64_t offset) {
  FormatError error(ErrorCode::kBadFormat, "the text is not UTF-8", "convert it to UTF-8");
  error.set_offset(offset);
  return error;
}

size_t whole_characters(std::string_view text) {
  for (size_t back = 1; back <= std::min<size_t>(3, text.size()); ++back) {
    const auto byte = static_cast<uint8_t>(text[text.size() - back]);
    if (byte < 0x80) break;
    if (byte < 0xC0) continue;
    const size_t length = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : 2;
    return length > back ? text.size() - back : text.size();
  }
  return text.size();
}

void append_utf8(char32_t c, std::string* out) {
  const auto push = [&](char32_t byte) { out->push_back(static_cast<char>(byte)); };
  if (c < 0x80) {
    push(c);
  } else if (c < 0x800) {
    push(0xC0 | c >> 6);
    push(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    push(0xE0 | c >> 12);
    push(0x80 | (c >> 6 & 0x3F));
    push(0x80 | (c & 0x3F));
  } else {
    push(0xF0 | c >> 18);
    push(0x80 | (c >> 12 & 0x3F));
    push(0x80 | (c >> 6 & 0x3F));
    push(0x80 | (c & 0x3F));
  }
}

std::string replace_invalid_utf8(std::string_view bytes) {
  std::string result;
  for (size_t at = 0; at < bytes.size();) {
    const int length = character_at(bytes, at);
    const auto taken = static_cast<size_t>(std::abs(length));
    result += length > 0 ? bytes.substr(at, taken) : std::string_view("\xEF\xBF\xBD");
    at += taken;
  }
  return result;
}

const std::array<std::string, 256>& byte_characters() { return byte_alphabet().characters; }

int byte_of_character(char32_t c) { return c < byte_alphabet().bytes.size() ? byte_alphabet().bytes[c] : -1; }

}  // namespace milepost::text
