#include "text/unicode.h"

#include <fmt/format.h>
#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/uniset.h>

#include <memory>

#include "milepost/base/error.h"
#include "text/newer_characters.h"
#include "text/utf8.h"

namespace milepost::text {
namespace {

UChar32 icu(char32_t c) { return static_cast<UChar32>(c); }

bool is_ascii(std::string_view text) {
  for (const char c : text) {
    if (static_cast<uint8_t>(c) >= 0x80) return false;
  }
  return true;
}

const icu::Normalizer2& unfiltered(NormalForm form) {
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* found = nullptr;
  switch (form) {
    case NormalForm::kNfc:
      found = icu::Normalizer2::getNFCInstance(status);
      break;
    case NormalForm::kNfd:
      found = icu::Normalizer2::getNFDInstance(status);
      break;
    case NormalForm::kNfkc:
      found = icu::Normalizer2::getNFKCInstance(status);
      break;
    case NormalForm::kNfkd:
      found = icu::Normalizer2::getNFKDInstance(status);
      break;
  }
  if (U_FAILURE(status)) throw ValueError(fmt::format("ICU has no data: {}", u_errorName(status)));
  return *found;
}

// The package's normalizer knows the characters of Unicode 9 and leaves others alone.
const icu::UnicodeSet& known_characters() {
  static const std::unique_ptr<const icu::UnicodeSet> set = [] {
    UErrorCode status = U_ZERO_ERROR;
    auto made = std::make_unique<icu::UnicodeSet>(icu::UnicodeString("[:age=9.0:]"), status);
    if (U_FAILURE(status)) throw ValueError(fmt::format("ICU has no data: {}", u_errorName(status)));
    made->freeze();
    return made;
  }();
  return *set;
}

icu::StringPiece piece(std::string_view text) { return {text.data(), static_cast<int32_t>(text.size())}; }

// Capital letters that Rust knows and ICU 72 does not.
char32_t newer_lowercase(char32_t c) {
  if (c >= 0x10D50 && c <= 0x10D65) return c + 0x20;
  if (c >= 0x16EA0 && c <= 0x16EB8) return c + 0x1B;
  switch (c) {
    case 0xA7CB:
      return 0x264;
    case 0xA7DC:
      return 0x19B;
    case 0x1C89:
    case 0xA7CC:
    case 0xA7CE:
    case 0xA7D2:
    case 0xA7D4:
    case 0xA7DA:
      return c + 1;
    default:
      return c;
  }
}

// The last character of `text`, which is not empty.
char32_t last_code_point(std::string_view text) {
  size_t at = text.size() - 1;
  while ((static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) --at;
  return next_code_point(text, &at);
}

}  // namespace

bool is_whitespace(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13);
  return u_isUWhiteSpace(icu(c)) != 0;
}

bool is_word(char32_t c) {
  constexpr uint32_t kTypes = U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK;
  return (U_MASK(u_charType(icu(stand_in(c)))) & kTypes) != 0 || u_isUAlphabetic(icu(stand_in(c))) != 0 ||
         c == 0x200C || c == 0x200D;
}

bool is_numeric(char32_t c) {
  if ((c >= 0x11DE0 && c <= 0x11DE9) || (c >= 0x16FF4 && c <= 0x16FF6)) return true;  // of Unicode 17
  return (U_MASK(u_charType(icu(stand_in(c)))) & U_GC_N_MASK) != 0;
}

bool is_punctuation(char32_t c) {
  if (c < 0x80) return c > ' ' && c < 0x7F && u_isalnum(icu(c)) == 0;
  if (c == 0x166D || c == 0x111C9) return true;  // a symbol and a mark in later versions
  UVersionInfo age;
  u_charAge(icu(c), age);
  return age[0] <= 8 && (U_MASK(u_charType(icu(c))) & U_GC_P_MASK) != 0;
}

void append_lowercase(char32_t c, std::string* out) {
  if (c == 0x130) {
    *out += "i\u0307";  // the only character whose lowercase is two
  } else {
    append_utf8(newer_lowercase(static_cast<char32_t>(u_tolower(icu(c)))), out);
  }
}

bool to_normal_form(NormalForm form, std::string_view text, std::string* out) {
  if (is_ascii(text)) return false;
  if (text.size() > size_t{INT32_MAX} / 4) {
    throw FormatError(ErrorCode::kTooLarge, "the text is too long to be normalized at once", "cut it");
  }
  UErrorCode status = U_ZERO_ERROR;
  out->clear();
  icu::StringByteSink<std::string> sink(out);
  const icu::FilteredNormalizer2 normalizer(unfiltered(form), known_characters());
  normalizer.normalizeUTF8(0, piece(text), sink, nullptr, status);
  if (U_FAILURE(status)) {
    throw FormatError(ErrorCode::kBadFormat,
                      fmt::format("the text cannot be normalized: {}", u_errorName(status)));
  }
  return true;
}

size_t leading_whitespace(std::string_view text) {
  size_t end = 0;
  while (end < text.size()) {
    size_t next = end;
    if (!is_whitespace(next_code_point(text, &next))) break;
    end = next;
  }
  return end;
}

size_t trailing_whitespace(std::string_view text) {
  std::string_view rest = text;
  while (!rest.empty()) {
    const char32_t c = last_code_point(rest);
    if (!is_whitespace(c)) break;
    rest.remove_suffix(c < 0x80 ? 1 : c < 0x800 ? 2 : 3);
  }
  return text.size() - rest.size();
}

bool starts_with_word(std::string_view text) {
  size_t at = 0;
  return !text.empty() && is_word(next_code_point(text, &at));
}

bool ends_with_word(std::string_view text) { return !text.empty() && is_word(last_code_point(text)); }

}  // namespace milepost::text
