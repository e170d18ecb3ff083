// The coordinator's plan (spec dcp-format, section 4):
//
// 1. Number what is proposed: groups (names) and places (a name and offsets). proposals.cc.
// 2. Each place gets an owner: visited in order of first appearance, the proposing rank with the least load.
// 3. Each rank keeps the items of its places, without empty chunks that say nothing.
// 4. The catalog lists groups in order of their first kept item, a group's chunks in order of rank and item.
// 5. Every element of every tensor must lie in exactly one chunk. coverage.cc.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "milepost/base/checked_math.h"
#include "milepost/base/error.h"
#include "milepost/plan/save_plan.h"
#include "plan/proposals.h"

namespace milepost {
namespace {

const LocalPlan::Item& item_at(const std::vector<LocalPlan>& ranks, int32_t rank, int32_t item) {
  return ranks[static_cast<size_t>(rank)].items()[static_cast<size_t>(item)];
}

// What torch's load grows by when a rank writes an item of the group.
int64_t group_load(const std::vector<LocalPlan>& ranks, const Group& group) {
  const LocalPlan::Item& item = item_at(ranks, group.rank, group.item);
  if (item.ndim < 0) return 1;
  const DimsView shape = ranks[static_cast<size_t>(group.rank)].shape(item);
  int64_t elements;
  std::optional<int64_t> bytes;
  if (checked_product(shape, &elements)) bytes = dtype_bytes(item.dtype, elements);
  if (!bytes) {
    ValueError error(
        fmt::format("shape {} of {} is not a size in bytes", dims_text(shape), dtype_name(item.dtype)));
    error.set_key(group.name);
    throw error;
  }
  return std::max<int64_t>(*bytes, 1);
}

// Who proposes each place that several ranks propose: `ranks` of place p from begins[p] on, ascending.
struct Candidates {
  std::vector<int32_t> begins, ranks;
};

Candidates candidates(const std::vector<LocalPlan>& ranks, const Proposals& proposals) {
  Candidates out;
  out.begins.reserve(proposals.places.size() + 1);
  int32_t total = 0;
  for (const Place& place : proposals.places) {
    out.begins.push_back(total);
    if (place.proposals > 1) total += place.proposals;
  }
  out.begins.push_back(total);
  out.ranks.resize(static_cast<size_t>(total));
  std::vector<int32_t> next(out.begins.begin(), out.begins.end() - 1);
  size_t at = 0;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    for (size_t i = 0; i < ranks[rank].items().size(); ++i) {
      const auto place = static_cast<size_t>(proposals.place_of[at++]);
      if (proposals.places[place].proposals > 1) {
        out.ranks[static_cast<size_t>(next[place]++)] = static_cast<int32_t>(rank);
      }
    }
  }
  return out;
}

// The rank that writes each place.
std::vector<int32_t> choose_owners(const std::vector<LocalPlan>& ranks, const Proposals& proposals) {
  const Candidates several = candidates(ranks, proposals);
  std::vector<int64_t> group_loads;
  group_loads.reserve(proposals.groups.size());
  for (const Group& group : proposals.groups) group_loads.push_back(group_load(ranks, group));
  std::vector<int64_t> loads(ranks.size(), 0);
  std::vector<int32_t> owners;
  owners.reserve(proposals.places.size());
  for (size_t p = 0; p < proposals.places.size(); ++p) {
    const Place& place = proposals.places[p];
    int32_t owner = place.rank;
    for (int32_t i = several.begins[p]; i < several.begins[p + 1]; ++i) {
      const int32_t rank = several.ranks[static_cast<size_t>(i)];
      if (loads[static_cast<size_t>(rank)] < loads[static_cast<size_t>(owner)]) owner = rank;
    }
    owners.push_back(owner);
    int64_t& load = loads[static_cast<size_t>(owner)];
    if (!checked_add(load, group_loads[static_cast<size_t>(place.group)], &load)) {
      load = std::numeric_limits<int64_t>::max();  // whole tensors are counted for each of their chunks
    }
  }
  return owners;
}

// Step 3 and the order of step 4.
struct Kept {
  std::vector<std::vector<int32_t>> writes;  // as in GlobalPlan
  std::vector<int32_t> order;                // groups by first kept item
  std::vector<int64_t> counts;               // of each group
};

Kept keep(const std::vector<LocalPlan>& ranks, const Proposals& proposals,
          const std::vector<int32_t>& owners) {
  std::vector<bool> has_elements(proposals.groups.size());
  for (const Place& place : proposals.places) {
    if (!place.empty) has_elements[static_cast<size_t>(place.group)] = true;
  }
  Kept kept;
  kept.writes.resize(ranks.size());
  kept.counts.resize(proposals.groups.size());
  size_t at = 0;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    for (size_t i = 0; i < ranks[rank].items().size(); ++i) {
      const auto place = static_cast<size_t>(proposals.place_of[at++]);
      if (owners[place] != static_cast<int32_t>(rank)) continue;
      const auto group = static_cast<size_t>(proposals.places[place].group);
      int64_t& count = kept.counts[group];
      if (proposals.places[place].empty && (has_elements[group] || count > 0)) continue;
      if (count++ == 0) kept.order.push_back(proposals.places[place].group);
      kept.writes[rank].push_back(static_cast<int32_t>(i));
    }
  }
  return kept;
}

class Assembly {
 public:
  Assembly(const std::vector<LocalPlan>& ranks, const Proposals& proposals, Kept kept)
      : ranks_(ranks), proposals_(proposals), kept_(std::move(kept)) {}

  GlobalPlan run() {
    number_groups();
    number_items();
    build_catalog();
    GlobalPlan plan;
    plan.writes = std::move(kept_.writes);
    plan.targets = std::move(targets_);
    plan.catalog = std::move(catalog_);
    return plan;
  }

 private:
  // A chunk's numbers lie in its rank's plan, one cache miss away from those of the chunk before.
  static constexpr size_t kAhead = 8;

  const LocalPlan::Item& first_item(size_t group) const {
    return item_at(ranks_, proposals_.groups[group].rank, proposals_.groups[group].item);
  }
  bool is_object(size_t group) const { return first_item(group).ndim < 0; }

  // Chunk numbers run through the tensors in order, object numbers through the objects.
  void number_groups() {
    next_.resize(proposals_.groups.size());
    int64_t objects = 0;
    for (int32_t index : kept_.order) {
      const auto group = static_cast<size_t>(index);
      next_[group] = is_object(group) ? -1 - objects++ : num_chunks_;
      if (!is_object(group)) num_chunks_ += kept_.counts[group];
    }
  }

  void number_items() {
    chunks_.resize(static_cast<size_t>(num_chunks_));
    targets_.resize(ranks_.size());
    size_t first = 0;
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      const LocalPlan& plan = ranks_[rank];
      targets_[rank].reserve(kept_.writes[rank].size());
      for (int32_t item : kept_.writes[rank]) {
        const int32_t place = proposals_.place_of[first + static_cast<size_t>(item)];
        const auto group = static_cast<size_t>(proposals_.places[static_cast<size_t>(place)].group);
        targets_[rank].push_back(next_[group]);
        if (next_[group] < 0) continue;
        chunks_[static_cast<size_t>(next_[group]++)] =
            plan.offsets(plan.items()[static_cast<size_t>(item)]).data();
      }
      first += ranks_[rank].items().size();
    }
  }

  void build_catalog() {
    size_t chunk = 0;
    std::vector<std::string> names;
    bool tensor_after_object = false;
    for (int32_t index : kept_.order) {
      const auto group = static_cast<size_t>(index);
      const std::string name(proposals_.groups[group].name);
      names.push_back(name);
      if (is_object(group)) {
        catalog_.add_object(name);
        continue;
      }
      tensor_after_object |= !catalog_.objects().empty();
      const LocalPlan::Item& first = first_item(group);
      catalog_.add_tensor(name, first.dtype,
                          ranks_[static_cast<size_t>(proposals_.groups[group].rank)].shape(first));
      const size_t ndim = catalog_.tensors().back().shape.size();
      for (const size_t end = chunk + static_cast<size_t>(kept_.counts[group]); chunk < end; ++chunk) {
        if (chunk + kAhead < chunks_.size()) __builtin_prefetch(chunks_[chunk + kAhead]);
        const int64_t* box = chunks_[chunk];
        catalog_.add_chunk({box, ndim}, {box + ndim, ndim});
      }
    }
    if (tensor_after_object) catalog_.set_order(std::move(names));
  }

  const std::vector<LocalPlan>& ranks_;
  const Proposals& proposals_;
  Kept kept_;
  std::vector<int64_t> next_;  // of each group: the number of its next chunk, or -1 - its object's
  int64_t num_chunks_ = 0;
  std::vector<const int64_t*> chunks_;  // offsets in the ranks' plans, the sizes behind them
  std::vector<std::vector<int64_t>> targets_;
  Catalog catalog_;
};

void validate(const Catalog& catalog) {
  constexpr int64_t kListed = 10;
  const std::vector<CoverageFault> faults = check_coverage(catalog, kListed + 1);
  if (faults.empty()) return;
  std::string text = "the ranks' boxes do not make whole tensors: ";
  for (size_t i = 0; i < std::min<size_t>(faults.size(), kListed); ++i) {
    const std::string& name = catalog.tensors()[static_cast<size_t>(faults[i].tensor)].name;
    text += fmt::format("{}'{}': {}", i == 0 ? "" : "; ", printable(name), faults[i].text);
  }
  if (faults.size() > kListed) text += "; and more";
  ValueError error(std::move(text), "check the placements and that every rank's plan is there");
  error.set_key(catalog.tensors()[static_cast<size_t>(faults[0].tensor)].name);
  throw error;
}

}  // namespace

GlobalPlan plan_global(const std::vector<LocalPlan>& ranks) {
  const Proposals proposals = number_proposals(ranks);
  Kept kept = keep(ranks, proposals, choose_owners(ranks, proposals));
  GlobalPlan plan = Assembly(ranks, proposals, std::move(kept)).run();
  validate(plan.catalog);
  return plan;
}

}  // namespace milepost
