// What all ranks propose, numbered: names across ranks, and places (a name and offsets), each of which is
// written once.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "milepost/plan/save_plan.h"

namespace milepost {

// Everything proposed under one name.
struct Group {
  std::string_view name;         // of some rank's plan
  int32_t rank = -1, item = -1;  // first proposal
  int32_t last_place = -1;       // the place added last; see Place::previous
  int32_t furthest = -1;         // the place with the largest offsets, compared from the left
  bool tabled = false;           // its places are in the table
};

// A place, as first proposed.
struct Place {
  int32_t rank, item;
  int32_t group;
  int32_t previous;       // the place that its group got before, -1 for the first
  bool empty;             // its box has no element
  int32_t proposals = 0;  // how many ranks have it
};

struct Proposals {
  std::vector<Group> groups;      // in order of first appearance
  std::vector<Place> places;      // likewise
  std::vector<int32_t> place_of;  // of each item, ranks end to end
};

// Throws ValueError (key) when proposals of one name or place disagree. Holds views into `ranks`.
Proposals number_proposals(const std::vector<LocalPlan>& ranks);

}  // namespace milepost
