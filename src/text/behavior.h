// What a split does with the matches of its pattern.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "text/json_node.h"
#include "text/regex.h"
#include "text/utf8.h"

namespace milepost::text {

enum class Behavior : uint8_t {
  kRemoved,             // only what lies between matches is left
  kIsolated,            // each match and each part between is a piece
  kMergedWithPrevious,  // a match belongs to what is before it; a match after a match stands alone
  kMergedWithNext,      // to what is after it
  kContiguous           // neighbouring matches are one piece
};

Behavior read_behavior(const JsonNode& node);

// Walks over a text in which each character with a property is a match, as MatchWalk does for a regex.
template <typename Predicate>
class CharacterWalk {
 public:
  CharacterWalk(std::string_view text, Predicate predicate) : text_(text), predicate_(std::move(predicate)) {}

  bool next(MatchRange* range) {
    if (match_end_ > at_) {
      *range = {at_, match_end_, true};
      at_ = match_end_;
      return true;
    }
    if (at_ == text_.size()) return false;
    const size_t begin = at_;
    while (at_ < text_.size()) {
      size_t end = at_;
      if (predicate_(next_code_point(text_, &end))) {
        match_end_ = end;
        if (at_ == begin) return next(range);
        break;
      }
      at_ = end;
    }
    *range = {begin, at_, false};
    return true;
  }

 private:
  std::string_view text_;
  Predicate predicate_;
  size_t at_ = 0, match_end_ = 0;  // a match [at_, match_end_) is due while match_end_ > at_
};

// Joins `ranges` (matches and what lies between, in order) as `behavior` says.
void join_matches(std::vector<MatchRange>* ranges, Behavior behavior);

// Calls emit(begin, end) for each piece. `next(MatchRange*)` gives matches and what lies between, in order,
// until it returns false.
template <typename Next, typename Emit>
void split_ranges(Next&& next, Behavior behavior, std::vector<MatchRange>* ranges, const Emit& emit) {
  MatchRange range;
  if (behavior == Behavior::kIsolated || behavior == Behavior::kRemoved) {
    while (next(&range)) {
      if (behavior == Behavior::kIsolated || !range.is_match) emit(range.begin, range.end);
    }
    return;
  }
  ranges->clear();
  while (next(&range)) ranges->push_back(range);
  join_matches(ranges, behavior);
  for (const MatchRange& joined : *ranges) emit(joined.begin, joined.end);
}

}  // namespace milepost::text
