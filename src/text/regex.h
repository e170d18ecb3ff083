// Regex: patterns written for Oniguruma, as tokenizer.json has them, matched by PCRE2.
//
// Patterns are untrusted: matching is bounded in memory and steps.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace milepost::text {

class JsonNode;

struct TextRange {
  size_t begin, end;
};

// A match, or what lies between two.
struct MatchRange {
  size_t begin, end;
  bool is_match;
};

// One thread's memory for matching; serves any regex.
class RegexScratch {
 public:
  RegexScratch();
  ~RegexScratch();
  RegexScratch(RegexScratch&&) noexcept;
  RegexScratch& operator=(RegexScratch&&) noexcept;

 private:
  friend class Regex;
  struct Memory;
  std::unique_ptr<Memory> memory_;
  std::string text_;  // with stand-ins
};

// Immutable; any thread, each with a scratch of its own.
class Regex {
 public:
  enum class Outcome : uint8_t {
    kFound,
    kNone,
    kUndecided  // text beyond the end could change what is found; only with `more_follows`
  };

  // Throws FormatError kBadFormat or kUnsupported, without a key, for a pattern that is wrong or means
  // something that PCRE2 cannot do.
  static Regex oniguruma(std::string_view pattern);
  static Regex literal(std::string_view text);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;

  // What to match instead of `text`, see newer_characters.h; a view of `text` or of the scratch's memory.
  std::string_view matchable(std::string_view text, RegexScratch* scratch) const;

  // The first match at or after `from`. Throws FormatError kTooLarge, the offset set, when matching takes too
  // much memory or too many steps. Requires valid UTF-8.
  Outcome find(std::string_view text, size_t from, bool more_follows, RegexScratch* scratch,
               TextRange* match) const;

  // Whether the matches from the end of one on are those of the rest of the text alone: it never looks back,
  // and no match is empty.
  bool is_resumable() const;

 private:
  struct Code;
  explicit Regex(std::unique_ptr<Code> code);
  std::unique_ptr<Code> code_;
};

// {"String": TEXT} or {"Regex": PATTERN}. Errors name the pattern's place.
Regex read_regex(const JsonNode& node);

// Walks over a text: matches and what lies between them, together all of it. An empty match counts unless it
// begins where the last match ended.
class MatchWalk {
 public:
  MatchWalk(const Regex& regex, std::string_view text, RegexScratch* scratch)
      : regex_(regex), text_(regex.matchable(text, scratch)), scratch_(scratch) {}

  // false: the end.
  bool next(MatchRange* range);

 private:
  bool find_next();

  const Regex& regex_;
  std::string_view text_;
  RegexScratch* scratch_;
  size_t done_ = 0;  // what has been handed out
  size_t search_from_ = 0;
  bool has_match_ = false;  // found_ waits to be handed out
  bool is_over_ = false;    // no more matches
  bool had_match_ = false;
  size_t last_match_end_ = 0;
  TextRange found_ = {0, 0};
};

}  // namespace milepost::text
