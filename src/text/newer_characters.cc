#include "text/newer_characters.h"

#include <algorithm>
#include <array>
#include <bitset>
#include <cstdint>
#include <cstring>

#include "text/utf8.h"

namespace milepost::text {
namespace {

struct NewerRange {
  char32_t first, last, stand_in;
};

constexpr NewerRange kNewer[] = {
#include "text/newer_characters.inc"
};

// The first two bytes of every newer character.
std::bitset<65536> make_beginnings() {
  std::bitset<65536> beginnings;
  for (const NewerRange& range : kNewer) {
    for (char32_t c = range.first; c <= range.last; ++c) {
      std::string bytes;
      append_utf8(c, &bytes);
      beginnings.set(
          static_cast<size_t>(static_cast<uint8_t>(bytes[0]) << 8 | static_cast<uint8_t>(bytes[1])));
    }
  }
  return beginnings;
}

// Whether the character at `at`, which is not ASCII, is newer.
bool is_newer(const std::bitset<65536>& beginnings, std::string_view text, size_t at) {
  const size_t two =
      static_cast<size_t>(static_cast<uint8_t>(text[at]) << 8 | static_cast<uint8_t>(text[at + 1]));
  if (!beginnings[two]) return false;
  const char32_t c = next_code_point(text, &at);
  return stand_in(c) != c;
}

// The offset of the first newer character at or after `at`, or the size.
size_t find_newer(std::string_view text, size_t at) {
  static const std::bitset<65536> beginnings = make_beginnings();
  while (at < text.size()) {
    uint64_t word;
    while (text.size() - at >= sizeof(word)) {
      std::memcpy(&word, text.data() + at, sizeof(word));
      if ((word & 0x8080808080808080u) != 0) break;
      at += sizeof(word);
    }
    if (at == text.size()) break;
    const auto lead = static_cast<uint8_t>(text[at]);
    if (lead < 0x80) {
      ++at;
      continue;
    }
    if (is_newer(beginnings, text, at)) return at;
    at += lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  }
  return text.size();
}

}  // namespace

char32_t stand_in(char32_t c) {
  const NewerRange* range =
      std::upper_bound(std::begin(kNewer), std::end(kNewer), c,
                       [](char32_t wanted, const NewerRange& candidate) { return wanted < candidate.first; });
  if (range == std::begin(kNewer) || c > (range - 1)->last) return c;
  return (range - 1)->stand_in;
}

std::string_view with_stand_ins(std::string_view text, std::string* buffer) {
  size_t at = find_newer(text, 0);
  if (at == text.size()) return text;
  *buffer = text;
  while (at < text.size()) {
    size_t end = at;
    std::string older;
    append_utf8(stand_in(next_code_point(text, &end)), &older);
    buffer->replace(at, end - at, older);
    at = find_newer(text, end);
  }
  return *buffer;
}

}  // namespace milepost::text
