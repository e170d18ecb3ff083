#include "text/behavior.h"

#include <algorithm>

namespace milepost::text {
namespace {

// A match joins the range before it in `ranges` order unless that is a match too; the first one is kept.
void join_with_neighbour(std::vector<MatchRange>* ranges) {
  bool was_match = false;
  size_t kept = 0;
  for (const MatchRange& range : *ranges) {
    if (range.is_match && !was_match && kept > 0) {
      MatchRange& last = (*ranges)[kept - 1];
      last = {std::min(last.begin, range.begin), std::max(last.end, range.end), false};
    } else {
      (*ranges)[kept++] = range;
    }
    was_match = range.is_match;
  }
  ranges->resize(kept);
}

void join_alike(std::vector<MatchRange>* ranges) {
  size_t kept = 0;
  for (const MatchRange& range : *ranges) {
    if (kept > 0 && (*ranges)[kept - 1].is_match == range.is_match) {
      (*ranges)[kept - 1].end = range.end;
    } else {
      (*ranges)[kept++] = range;
    }
  }
  ranges->resize(kept);
}

}  // namespace

void join_matches(std::vector<MatchRange>* ranges, Behavior behavior) {
  if (behavior == Behavior::kMergedWithPrevious) {
    join_with_neighbour(ranges);
  } else if (behavior == Behavior::kMergedWithNext) {
    std::reverse(ranges->begin(), ranges->end());
    join_with_neighbour(ranges);
    std::reverse(ranges->begin(), ranges->end());
  } else if (behavior == Behavior::kContiguous) {
    join_alike(ranges);
  }
}

Behavior read_behavior(const JsonNode& node) {
  constexpr std::pair<std::string_view, Behavior> kNames[] = {
      {"Removed", Behavior::kRemoved},
      {"Isolated", Behavior::kIsolated},
      {"MergedWithPrevious", Behavior::kMergedWithPrevious},
      {"MergedWithNext", Behavior::kMergedWithNext},
      {"Contiguous", Behavior::kContiguous}};
  for (const auto& [name, behavior] : kNames) {
    if (node.text() == name) return behavior;
  }
  throw node.unknown("behavior", node.text());
}

}  // namespace milepost::text
