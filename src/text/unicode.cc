#include "text/unicode.h"

#include <fmt/format.h>
#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>

#include "milepost/base/error.h"
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

const icu::Normalizer2& normalizer(NormalForm form) {
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

icu::StringPiece piece(std::string_view text) { return {text.data(), static_cast<int32_t>(text.size())}; }

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
  return (U_MASK(u_charType(icu(c))) & kTypes) != 0 || u_isUAlphabetic(icu(c)) != 0 || c == 0x200C ||
         c == 0x200D;
}

bool is_numeric(char32_t c) { return (U_MASK(u_charType(icu(c))) & U_GC_N_MASK) != 0; }

bool is_punctuation(char32_t c) {
  if (c < 0x80) return c > ' ' && c < 0x7F && u_isalnum(icu(c)) == 0;
  return (U_MASK(u_charType(icu(c))) & U_GC_P_MASK) != 0;
}

void append_lowercase(char32_t c, std::string* out) {
  if (c == 0x130) {
    *out += "i\u0307";  // the only character whose lowercase is two
  } else {
    append_utf8(static_cast<char32_t>(u_tolower(icu(c))), out);
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
  normalizer(form).normalizeUTF8(0, piece(text), sink, nullptr, status);
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
