// Where the two languages differ, and what is written instead:
//
// 1. ^ and $ match at lines, . at all but \n: flags of the compilation. (?m) lets . match \n: (?s).
// 2. \s, \w, [:alpha:] and their like are other sets of characters: written out with Unicode properties.
// 3. \h is a hexadecimal digit, \v the character U+000B, \uHHHH a character.
// 4. \p{Name} is a script by its own characters (not by extensions), categories have long names, \p{^X}
// negates.
// 5. {,n} is {0,n}; {n,m}+ is not possessive, {n}? not lazy: refused.
// 6. (?i) lets one character stand for ss, fi, ...: refused where the letters occur.
// 7. A [ inside a class begins another class, && intersects: refused. (*VERBS) and conditions are refused.
#include "text/regex_syntax.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>

#include "milepost/base/error.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace milepost::text {
namespace {

struct Named {
  std::string_view name, members;
};

// Names in lower case without '_', '-' and spaces; members as they stand inside a class.
// With the marks that Unicode 16 calls alphabetic.
constexpr std::string_view kAlphabetic =
    R"(\p{Alphabetic}\x{363}-\x{36f}\x{c04}\x{f82}\x{f83}\x{1dd3}-\x{1de6}\x{11080}\x{11081})";
constexpr std::string_view kSpace = R"(\x{9}-\x{d}\x{85}\p{Z})";
constexpr std::string_view kWord = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";
// The numbers of Latin-1 are word characters to Oniguruma, but not inside of a class.
constexpr std::string_view kLoneWord = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})";
constexpr std::array<Named, 14> kSets = {{
    {"alnum",
     R"(\p{Alphabetic}\x{363}-\x{36f}\x{c04}\x{f82}\x{f83}\x{1dd3}-\x{1de6}\x{11080}\x{11081}\p{Nd})"},
    {"alpha", kAlphabetic},
    {"alphabetic", kAlphabetic},
    {"any", R"(\x{0}-\x{10ffff})"},
    {"ascii", R"(\x{0}-\x{7f})"},
    {"cntrl", R"(\p{Cc})"},
    {"digit", R"(\p{Nd})"},
    {"lower", R"(\p{Lowercase})"},
    {"lowercase", R"(\p{Lowercase})"},
    {"space", kSpace},
    {"upper", R"(\p{Uppercase})"},
    {"uppercase", R"(\p{Uppercase})"},
    {"word", kWord},
    {"xdigit", "0-9a-fA-F"},
}};
constexpr std::array<Named, 37> kCategories = {{
    {"other", "C"},
    {"control", "Cc"},
    {"format", "Cf"},
    {"unassigned", "Cn"},
    {"privateuse", "Co"},
    {"surrogate", "Cs"},
    {"letter", "L"},
    {"casedletter", "L&"},
    {"lowercaseletter", "Ll"},
    {"modifierletter", "Lm"},
    {"otherletter", "Lo"},
    {"titlecaseletter", "Lt"},
    {"uppercaseletter", "Lu"},
    {"mark", "M"},
    {"combiningmark", "M"},
    {"spacingmark", "Mc"},
    {"enclosingmark", "Me"},
    {"nonspacingmark", "Mn"},
    {"number", "N"},
    {"decimalnumber", "Nd"},
    {"letternumber", "Nl"},
    {"othernumber", "No"},
    {"punctuation", "P"},
    {"connectorpunctuation", "Pc"},
    {"dashpunctuation", "Pd"},
    {"closepunctuation", "Pe"},
    {"finalpunctuation", "Pf"},
    {"initialpunctuation", "Pi"},
    {"otherpunctuation", "Po"},
    {"openpunctuation", "Ps"},
    {"symbol", "S"},
    {"currencysymbol", "Sc"},
    {"modifiersymbol", "Sk"},
    {"mathsymbol", "Sm"},
    {"othersymbol", "So"},
    {"separator", "Z"},
    {"spaceseparator", "Zs"},
}};

// The members of \W as ranges: a union of properties cannot say it inside of a class.
std::string non_word_ranges() {
  std::string ranges;
  int64_t begin = -1;
  for (char32_t c = 0; c <= 0x110000; ++c) {
    // The joiners are word characters in Rust but not here.
    const bool is_member = c < 0x110000 && (!is_word(c) || c == 0x200C || c == 0x200D);
    if (is_member && begin < 0 && (c < 0xD800 || c > 0xDFFF)) begin = c;
    const bool ends = !is_member || c == 0xD800;
    if (begin >= 0 && ends) {
      ranges += fmt::format("\\x{{{:x}}}-\\x{{{:x}}}", begin, static_cast<uint32_t>(c) - 1);
      begin = -1;
    }
  }
  return ranges;
}

// Without regard to case, Oniguruma takes one character for two letters: \u00DF for ss, \uFB01 for fi.
void refuse_long_folds(std::string_view pattern) {
  if (pattern.find("(?i") == std::string_view::npos) return;
  std::string lower;
  for (size_t at = 0; at < pattern.size();) append_lowercase(next_code_point(pattern, &at), &lower);
  for (const char* letters : {"ss", "ff", "fi", "fl", "st", "\u00DF"}) {
    if (lower.find(letters) == std::string::npos) continue;
    throw FormatError(
        ErrorCode::kUnsupported,
        fmt::format("the regex is without regard to case and holds '{}', for which other numbers of "
                    "characters can stand; that is not supported",
                    letters));
  }
}

class Rewriter {
 public:
  explicit Rewriter(std::string_view pattern) : pattern_(pattern) {}

  std::string run() {
    while (at_ < pattern_.size()) {
      switch (pattern_[at_]) {
        case '\\':
          escape(false);
          break;
        case '[':
          set();
          break;
        case '(':
          group();
          break;
        case '{':
          interval();
          break;
        default:
          out_ += pattern_[at_++];
      }
    }
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(std::string_view what) const {
    throw FormatError(ErrorCode::kUnsupported,
                      fmt::format("the regex uses {} (at byte {} of it), which is not supported", what, at_));
  }

  char peek(size_t ahead) const { return at_ + ahead < pattern_.size() ? pattern_[at_ + ahead] : '\0'; }

  void set_of(std::string_view members, bool negated, bool in_class) {
    if (!in_class) {
      out_ += fmt::format("[{}{}]", negated ? "^" : "", members);
    } else if (!negated) {
      out_ += members;
    } else if (members.starts_with("\\p{") && members.find('}') + 1 == members.size()) {
      out_ += fmt::format("\\P{}", members.substr(2));
    } else {
      refuse("a negated set inside of a class");
    }
  }

  void escape(bool in_class) {
    const char c = peek(1);
    if (c == '\0') refuse("a backslash at its end");
    if (c == 'p' || c == 'P') return property(in_class);
    if (c == 'u' || c == 'x') return code_point();
    at_ += 2;
    switch (c) {
      case 's':
        return set_of(kSpace, false, in_class);
      case 'S':
        // PCRE2 takes U+180E for a space.
        out_ += in_class ? "\\S\\x{180e}" : fmt::format("[^{}]", kSpace);
        return;
      case 'w':
        return set_of(in_class ? kWord : kLoneWord, false, in_class);
      case 'W':
        out_ += in_class ? non_word_ranges() : fmt::format("[^{}]", kLoneWord);
        return;
      case 'h':
      case 'H':
        return set_of("0-9a-fA-F", c == 'H', in_class);
      case 'b':
      case 'B':
        if (in_class) break;
        out_ += fmt::format("(?:(?<=[{0}])(?{1}[{0}])|(?<![{0}])(?{2}[{0}]))", kLoneWord,
                            c == 'b' ? '!' : '=', c == 'b' ? '=' : '!');
        return;
      case 'v':
        out_ += "\\x{b}";
        return;
      default:
        break;
    }
    const bool is_word_like = std::isalnum(static_cast<unsigned char>(c)) != 0;
    const std::string_view known = in_class ? "dDnrtfaeb" : "dDnrtfaeAzZRXk123456789";
    if (is_word_like && known.find(c) == std::string_view::npos) {
      at_ -= 2;
      refuse(fmt::format("\\{}", c));
    }
    out_ += '\\';
    out_ += c;
  }

  void code_point() {
    const bool is_unicode = peek(1) == 'u';
    std::string_view digits;
    size_t length = 0;
    if (!is_unicode && peek(2) == '{') {
      const size_t close = pattern_.find('}', at_);
      if (close == std::string_view::npos) refuse("\\x{ without }");
      digits = pattern_.substr(at_ + 3, close - at_ - 3);
      length = close + 1 - at_;
    } else {
      digits = pattern_.substr(at_ + 2, is_unicode ? 4 : 2);
      length = 2 + digits.size();
    }
    const bool are_hex = std::all_of(digits.begin(), digits.end(), [](char c) {
      return std::isxdigit(static_cast<unsigned char>(c)) != 0;
    });
    if (digits.empty() || digits.size() > 8 || !are_hex || (is_unicode && digits.size() != 4)) {
      refuse("an odd code point");
    }
    if (!is_unicode && peek(2) != '{' && digits.size() == 2 && digits[0] >= '8')
      refuse("a single byte above 7f");
    out_ += fmt::format("\\x{{{}}}", digits);
    at_ += length;
  }

  void property(bool in_class) {
    bool negated = peek(1) == 'P';
    if (peek(2) != '{') refuse("\\p without a name in braces");
    const size_t close = pattern_.find('}', at_);
    if (close == std::string_view::npos) refuse("\\p{ without }");
    std::string name;
    for (const char c : pattern_.substr(at_ + 3, close - at_ - 3)) {
      if (c == '^' && name.empty()) {
        negated = !negated;
      } else if (c != '_' && c != '-' && c != ' ') {
        if (std::isalnum(static_cast<unsigned char>(c)) == 0) refuse("an odd name of a property");
        name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      }
    }
    for (const Named& known : kSets) {
      if (known.name == name) {
        at_ = close + 1;
        return set_of(known.members, negated, in_class);
      }
    }
    if (name == "punct") refuse("\\p{Punct}");
    std::string written = "sc:" + name;
    for (const Named& known : kCategories) {
      std::string short_name(known.members);
      for (char& c : short_name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      if (known.name == name || short_name == name) written = known.members;
    }
    if (name == "zl") written = "Zl";
    if (name == "zp") written = "Zp";
    at_ = close + 1;
    out_ += fmt::format("\\{}{{{}}}", negated ? 'P' : 'p', written);
  }

  void set() {
    out_ += pattern_[at_++];
    if (peek(0) == '^') out_ += pattern_[at_++];
    if (peek(0) == ']') {
      out_ += "\\]";
      ++at_;
    }
    while (at_ < pattern_.size() && pattern_[at_] != ']') {
      if (pattern_[at_] == '\\') {
        escape(true);
      } else if (pattern_[at_] == '[') {
        posix_set();
      } else if (pattern_[at_] == '&' && peek(1) == '&') {
        refuse("an intersection of classes");
      } else {
        out_ += pattern_[at_++];
      }
    }
    if (at_ == pattern_.size()) refuse("a class without its end");
    out_ += pattern_[at_++];
  }

  void posix_set() {
    const size_t close = pattern_.find(":]", at_);
    if (peek(1) != ':' || close == std::string_view::npos) refuse("a class inside of a class");
    const std::string_view name = pattern_.substr(at_ + 2, close - at_ - 2);
    for (const Named& known : kSets) {
      if (known.name == name) {
        out_ += known.members;
        at_ = close + 2;
        return;
      }
    }
    refuse(fmt::format("[:{}:]", printable(name, 20)));
  }

  void group() {
    if (peek(1) == '*') refuse("(*");
    if (peek(1) != '?') {
      out_ += pattern_[at_++];
      return;
    }
    for (const std::string_view plain : {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!", "(?<"}) {
      if (pattern_.substr(at_).starts_with(plain)) {
        out_ += plain;
        at_ += plain.size();
        return;
      }
    }
    const size_t end = pattern_.find_first_of(":)", at_);
    const std::string_view flags =
        end == std::string_view::npos ? "?" : pattern_.substr(at_ + 2, end - at_ - 2);
    if (flags.find_first_not_of("im-") != std::string_view::npos) refuse("an unusual group");
    out_ += "(?";
    for (const char c : flags) out_ += c == 'm' ? 's' : c;
    out_ += pattern_[end];
    at_ = end + 1;
  }

  void interval() {
    const size_t close = pattern_.find('}', at_);
    const std::string_view inside =
        close == std::string_view::npos ? std::string_view() : pattern_.substr(at_ + 1, close - at_ - 1);
    const size_t comma = inside.find(',');
    const bool is_interval =
        inside.find_first_not_of("0123456789,") == std::string_view::npos &&
        inside.find_first_of("0123456789") != std::string_view::npos &&
        (comma == std::string_view::npos || inside.find(',', comma + 1) == std::string_view::npos);
    if (!is_interval) {
      out_ += "\\{";
      ++at_;
      return;
    }
    at_ = close + 1;
    if (peek(0) == '+') refuse("{...}+");
    if (peek(0) == '?' && comma == std::string_view::npos) refuse("{n}?");
    out_ += fmt::format("{{{}{}}}", inside[0] == ',' ? "0" : "", inside);
  }

  std::string_view pattern_;
  size_t at_ = 0;
  std::string out_;
};

}  // namespace

std::string pcre2_pattern(std::string_view pattern) {
  refuse_long_folds(pattern);
  return Rewriter(pattern).run();
}

}  // namespace milepost::text
