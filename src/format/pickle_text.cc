#include "format/pickle_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <vector>

namespace milepost::pickle {
namespace {

// Length of the sequence at `p`, 0 when there is none that is well-formed. Surrogates pass.
size_t sequence_length(const unsigned char* p, size_t left) {
  const auto continues = [&](size_t i) { return (p[i] & 0xc0) == 0x80; };
  if (p[0] < 0x80) return 1;
  if (p[0] >= 0xc2 && p[0] <= 0xdf) return left >= 2 && continues(1) ? 2 : 0;
  if ((p[0] & 0xf0) == 0xe0) {
    if (left < 3 || !continues(1) || !continues(2)) return 0;
    return p[0] == 0xe0 && p[1] < 0xa0 ? 0 : 3;
  }
  if (p[0] >= 0xf0 && p[0] <= 0xf4) {
    if (left < 4 || !continues(1) || !continues(2) || !continues(3)) return 0;
    if (p[0] == 0xf0 && p[1] < 0x90) return 0;
    return p[0] == 0xf4 && p[1] > 0x8f ? 0 : 4;
  }
  return 0;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// Exactly `count` hex digits at `position`, which moves past them.
std::optional<uint32_t> take_hex(std::string_view text, size_t* position, size_t count) {
  if (text.size() - *position < count) return std::nullopt;
  uint32_t value = 0;
  for (size_t i = 0; i < count; ++i) {
    const int digit = hex_digit(text[(*position)++]);
    if (digit < 0) return std::nullopt;
    value = value << 4 | static_cast<uint32_t>(digit);
  }
  return value;
}

// Magnitude in limbs of 32 bits, least first, to decimal digits. Consumes the limbs.
std::string decimal_of(std::vector<uint32_t> limbs, bool negative) {
  std::string reversed;
  while (!limbs.empty()) {
    uint64_t rest = 0;
    for (size_t i = limbs.size(); i-- > 0;) {
      rest = rest << 32 | limbs[i];
      limbs[i] = static_cast<uint32_t>(rest / 1'000'000'000);
      rest %= 1'000'000'000;
    }
    while (!limbs.empty() && limbs.back() == 0) limbs.pop_back();
    for (int i = 0; i < 9; ++i, rest /= 10) reversed.push_back(static_cast<char>('0' + rest % 10));
  }
  while (reversed.size() > 1 && reversed.back() == '0') reversed.pop_back();
  if (negative) reversed.push_back('-');
  std::reverse(reversed.begin(), reversed.end());
  return reversed;
}

void append_octal(std::string_view literal, size_t* i, std::string* out) {
  int value = 0;
  for (int digits = 0; digits < 3 && *i < literal.size() && literal[*i] >= '0' && literal[*i] <= '7';
       ++digits) {
    value = value * 8 + (literal[(*i)++] - '0');
  }
  out->push_back(static_cast<char>(value));
}

}  // namespace

bool is_utf8(std::string_view text) {
  const auto* p = reinterpret_cast<const unsigned char*>(text.data());
  size_t left = text.size();
  while (left != 0) {
    uint64_t word;
    if (left >= 8 && (std::memcpy(&word, p, 8), (word & 0x8080808080808080) == 0)) {
      p += 8;
      left -= 8;
      continue;
    }
    const size_t length = sequence_length(p, left);
    if (length == 0) return false;
    p += length;
    left -= length;
  }
  return true;
}

void append_utf8(std::string* text, uint32_t c) {
  const auto put = [&](uint32_t byte) { text->push_back(static_cast<char>(byte)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xc0 | c >> 6);
    put(0x80 | (c & 0x3f));
  } else if (c < 0x10000) {
    put(0xe0 | c >> 12);
    put(0x80 | (c >> 6 & 0x3f));
    put(0x80 | (c & 0x3f));
  } else {
    put(0xf0 | c >> 18);
    put(0x80 | (c >> 12 & 0x3f));
    put(0x80 | (c >> 6 & 0x3f));
    put(0x80 | (c & 0x3f));
  }
}

uint32_t next_code_point(std::string_view text, size_t* position) {
  const auto byte = [&](size_t i) {
    return static_cast<uint32_t>(static_cast<unsigned char>(text[*position + i]));
  };
  const uint32_t first = byte(0);
  const size_t length = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  static constexpr uint32_t kMask[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
  uint32_t c = first & kMask[length];
  for (size_t i = 1; i < length; ++i) c = c << 6 | (byte(i) & 0x3f);
  *position += length;
  return c;
}

std::optional<std::string> latin1_bytes(std::string_view utf8) {
  std::string bytes;
  bytes.reserve(utf8.size());
  for (size_t i = 0; i < utf8.size();) {
    const uint32_t c = next_code_point(utf8, &i);
    if (c > 0xff) return std::nullopt;
    bytes.push_back(static_cast<char>(c));
  }
  return bytes;
}

std::string latin1_text(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size() + bytes.size() / 2);
  for (char c : bytes) append_utf8(&text, static_cast<unsigned char>(c));
  return text;
}

std::optional<std::string> unquote(std::string_view literal) {
  if (literal.size() < 2 || literal.front() != literal.back()) return std::nullopt;
  if (literal.front() != '\'' && literal.front() != '"') return std::nullopt;
  literal = literal.substr(1, literal.size() - 2);
  std::string out;
  out.reserve(literal.size());
  for (size_t i = 0; i < literal.size();) {
    if (literal[i] != '\\') {
      out.push_back(literal[i++]);
      continue;
    }
    if (++i == literal.size()) return std::nullopt;
    const char c = literal[i];
    static constexpr std::string_view kLetters = "abfnrtv\\'\"", kMeaning = "\a\b\f\n\r\t\v\\'\"";
    if (const size_t at = kLetters.find(c); at != std::string_view::npos) {
      out.push_back(kMeaning[at]);
      ++i;
    } else if (c == 'x') {
      const auto value = take_hex(literal, &++i, 2);
      if (!value) return std::nullopt;
      out.push_back(static_cast<char>(*value));
    } else if (c >= '0' && c <= '7') {
      append_octal(literal, &i, &out);
    } else if (c == '\n') {
      ++i;
    } else {
      out.push_back('\\');  // not an escape: both characters stay
    }
  }
  return out;
}

std::optional<std::string> raw_unicode_unescape(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const auto c = static_cast<unsigned char>(text[i++]);
    if (c != '\\' || i == text.size()) {
      append_utf8(&out, c);
      continue;
    }
    const char letter = text[i++];
    if (letter != 'u' && letter != 'U') {
      out.push_back('\\');
      append_utf8(&out, static_cast<unsigned char>(letter));
      continue;
    }
    const auto code_point = take_hex(text, &i, letter == 'u' ? 4 : 8);
    if (!code_point || *code_point > 0x10ffff) return std::nullopt;
    append_utf8(&out, *code_point);
  }
  return out;
}

Long long_from_bytes(Bytes bytes) {
  size_t size = bytes.size();
  const auto byte = [&](size_t i) { return std::to_integer<uint8_t>(bytes[i]); };
  if (size == 0) return {};
  const bool negative = (byte(size - 1) & 0x80) != 0;
  const uint8_t filler = negative ? 0xff : 0;
  while (size > 1 && byte(size - 1) == filler && ((byte(size - 2) & 0x80) != 0) == negative) --size;
  if (size <= 8) {
    uint64_t value = negative ? ~uint64_t{0} : 0;
    for (size_t i = size; i-- > 0;) value = value << 8 | byte(i);
    return {static_cast<int64_t>(value), {}};
  }
  std::vector<uint32_t> limbs((size + 3) / 4 + 1, 0);
  for (size_t i = 0; i < limbs.size() * 4; ++i) {
    const uint8_t digit = i < size ? byte(i) : filler;
    limbs[i / 4] |= static_cast<uint32_t>(negative ? static_cast<uint8_t>(~digit) : digit) << (i % 4 * 8);
  }
  for (size_t i = 0; negative && i < limbs.size() && ++limbs[i] == 0;) ++i;
  while (!limbs.empty() && limbs.back() == 0) limbs.pop_back();
  return {0, decimal_of(std::move(limbs), negative)};
}

std::optional<Long> long_from_text(std::string_view text) {
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  if (text.empty() || text.find_first_not_of("0123456789") != std::string_view::npos) return std::nullopt;
  text.remove_prefix(std::min(text.find_first_not_of('0'), text.size() - 1));
  std::string digits = (negative ? "-" : "") + std::string(text);
  int64_t value = 0;
  if (std::from_chars(digits.data(), digits.data() + digits.size(), value).ec == std::errc())
    return Long{value, {}};
  return Long{0, std::move(digits)};
}

std::string long_to_bytes(std::string_view decimal) {
  const bool negative = decimal.starts_with('-');
  if (negative) decimal.remove_prefix(1);
  std::vector<uint32_t> limbs;
  for (char c : decimal) {
    uint64_t carry = static_cast<uint64_t>(c - '0');
    for (uint32_t& limb : limbs) {
      carry += uint64_t{limb} * 10;
      limb = static_cast<uint32_t>(carry);
      carry >>= 32;
    }
    if (carry != 0) limbs.push_back(static_cast<uint32_t>(carry));
  }
  limbs.push_back(0);  // room for the sign
  if (negative) {
    for (uint32_t& limb : limbs) limb = ~limb;
    for (size_t i = 0; i < limbs.size() && ++limbs[i] == 0;) ++i;
  }
  std::string bytes;
  for (uint32_t limb : limbs) {
    for (int shift = 0; shift < 32; shift += 8) bytes.push_back(static_cast<char>(limb >> shift));
  }
  const char filler = negative ? '\xff' : '\0';
  while (bytes.size() > 1 && bytes.back() == filler && ((bytes[bytes.size() - 2] & 0x80) != 0) == negative) {
    bytes.pop_back();
  }
  return bytes;
}

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific).ptr;
  const std::string_view text(buffer, static_cast<size_t>(end - buffer));
  const size_t e = text.find('e');
  int exponent = 0;
  std::from_chars(text.data() + e + (text[e + 1] == '+' ? 2 : 1), end, exponent);
  if (exponent < -4 || exponent >= 16) return std::string(text);
  std::string digits;
  for (char c : text.substr(0, e)) {
    if (c >= '0' && c <= '9') digits.push_back(c);
  }
  const std::string sign = text.starts_with('-') ? "-" : "";
  if (exponent < 0) return sign + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  const size_t whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() < whole) digits.append(whole - digits.size(), '0');
  if (digits.size() == whole) return sign + digits + ".0";
  return sign + digits.substr(0, whole) + "." + digits.substr(whole);
}

}  // namespace milepost::pickle
