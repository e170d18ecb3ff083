// Numbering what ranks propose, made cheap by what is common:
//
// 1. Names follow each other in the same order on most ranks: the name that followed the last one before is
//    tried first, a hash lookup is the exception.
// 2. Along one cut dimension, rank order is offset order: an item starts beyond all earlier ones of its name
// (a
//    new place) or where the furthest does (a copy). Only names that break this rule get their places hashed.
#include "plan/proposals.h"

#include <fmt/format.h>

#include <algorithm>
#include <compare>
#include <functional>
#include <limits>

#include "milepost/base/error.h"
#include "plan/place_hash.h"

namespace milepost {
namespace {

[[noreturn]] void refuse(std::string what, std::string_view name) {
  ValueError error(std::move(what), "ranks must agree on what they save under one name");
  error.set_key(name);
  throw error;
}

std::string kind_text(const LocalPlan& plan, const LocalPlan::Item& item) {
  if (item.ndim < 0) return "an object";
  return fmt::format("{} {}", dtype_name(item.dtype), dims_text(plan.shape(item)));
}

class Numbering {
 public:
  explicit Numbering(const std::vector<LocalPlan>& ranks) : ranks_(ranks) {}

  Proposals run() {
    size_t total = 0;
    for (const LocalPlan& plan : ranks_) total += plan.items().size();
    if (total > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
      throw ValueError(fmt::format("a plan of {} items is too large", total));
    }
    out_.place_of.reserve(total);
    for (size_t rank = 0; rank < ranks_.size(); ++rank) number_rank(static_cast<int32_t>(rank));
    return std::move(out_);
  }

 private:
  Group& group_at(int32_t index) { return out_.groups[static_cast<size_t>(index)]; }
  Place& place_at(int32_t index) { return out_.places[static_cast<size_t>(index)]; }
  const LocalPlan& plan_of(int32_t rank) const { return ranks_[static_cast<size_t>(rank)]; }
  const LocalPlan::Item& item_at(int32_t rank, int32_t item) const {
    return plan_of(rank).items()[static_cast<size_t>(item)];
  }
  DimsView offsets(const Place& place) const {
    return plan_of(place.rank).offsets(item_at(place.rank, place.item));
  }

  void number_rank(int32_t rank) {
    const LocalPlan& plan = plan_of(rank);
    std::vector<int32_t> group_of_name;
    group_of_name.reserve(plan.names().size());
    for (size_t i = 0; i < plan.names().size(); ++i) {
      group_of_name.push_back(group_of(plan.names()[static_cast<int32_t>(i)]));
    }
    for (size_t i = 0; i < plan.items().size(); ++i) {
      const int32_t group = group_of_name[static_cast<size_t>(plan.items()[i].name)];
      const int32_t place = place_of(group, rank, static_cast<int32_t>(i));
      ++place_at(place).proposals;
      out_.place_of.push_back(place);
    }
  }

  int32_t group_of(std::string_view name) {
    const auto last = static_cast<size_t>(last_group_);
    int32_t group = follower_[last];
    if (group < 0 || group_at(group).name != name) {
      group = find_group(name);
      follower_[last] = group;
    }
    last_group_ = group + 1;
    return group;
  }

  int32_t find_group(std::string_view name) {
    const auto next = static_cast<int32_t>(out_.groups.size());
    const auto equal = [&](int32_t i) { return group_at(i).name == name; };
    const int32_t group = names_.find_or_add(std::hash<std::string_view>{}(name), next, equal);
    if (group == next) {
      out_.groups.push_back({name});
      follower_.push_back(-1);
    }
    return group;
  }

  int32_t place_of(int32_t group_index, int32_t rank, int32_t item_index) {
    const LocalPlan& plan = plan_of(rank);
    const LocalPlan::Item& item = item_at(rank, item_index);
    Group& group = group_at(group_index);
    if (group.rank < 0) {
      group.rank = rank;
      group.item = item_index;
      return group.furthest = add_place(group_index, rank, item_index);
    }
    check_same_tensor(group, rank, item);
    const DimsView wanted = plan.offsets(item), furthest = offsets(place_at(group.furthest));
    const auto order = std::lexicographical_compare_three_way(wanted.begin(), wanted.end(), furthest.begin(),
                                                              furthest.end());
    if (order == std::strong_ordering::less) return find_place(group_index, rank, item_index);
    if (order == std::strong_ordering::equal) {
      check_same_box(place_at(group.furthest), rank, item);
      return group.furthest;
    }
    const int32_t place = add_place(group_index, rank, item_index);
    if (group.tabled) put_into_table(place);
    return group.furthest = place;
  }

  int32_t find_place(int32_t group_index, int32_t rank, int32_t item_index) {
    Group& group = group_at(group_index);
    if (!group.tabled) {
      group.tabled = true;
      for (int32_t place = group.last_place; place >= 0; place = place_at(place).previous)
        put_into_table(place);
    }
    const int32_t added = add_place(group_index, rank, item_index);
    const int32_t place = put_into_table(added);
    if (place == added) return added;
    group.last_place = place_at(added).previous;  // it was there: take the new one back
    out_.places.pop_back();
    check_same_box(place_at(place), rank, item_at(rank, item_index));
    return place;
  }

  int32_t add_place(int32_t group_index, int32_t rank, int32_t item_index) {
    const auto place = static_cast<int32_t>(out_.places.size());
    Group& group = group_at(group_index);
    const DimsView sizes = plan_of(rank).sizes(item_at(rank, item_index));
    const bool empty = std::find(sizes.begin(), sizes.end(), 0) != sizes.end();
    out_.places.push_back({rank, item_index, group_index, group.last_place, empty});
    return group.last_place = place;
  }

  // The place in the table that equals `index`, which is put there when none does.
  int32_t put_into_table(int32_t index) {
    const Place& place = place_at(index);
    const DimsView wanted = offsets(place);
    return places_.find_or_add(place_hash(place.group, wanted), index, [&](int32_t other) {
      return place_at(other).group == place.group && std::ranges::equal(offsets(place_at(other)), wanted);
    });
  }

  void check_same_tensor(const Group& group, int32_t rank, const LocalPlan::Item& item) const {
    const LocalPlan::Item& first = item_at(group.rank, group.item);
    const LocalPlan &plan = plan_of(rank), &first_plan = plan_of(group.rank);
    if (first.ndim == item.ndim && first.dtype == item.dtype &&
        std::ranges::equal(first_plan.shape(first), plan.shape(item))) {
      return;
    }
    refuse(fmt::format("rank {} proposes {}, rank {} {}", group.rank, kind_text(first_plan, first), rank,
                       kind_text(plan, item)),
           group.name);
  }

  void check_same_box(const Place& place, int32_t rank, const LocalPlan::Item& item) const {
    const DimsView first = plan_of(place.rank).sizes(item_at(place.rank, place.item));
    const DimsView sizes = plan_of(rank).sizes(item);
    if (std::ranges::equal(first, sizes)) return;
    refuse(fmt::format("at offsets {} rank {} proposes a box of sizes {}, rank {} of {}",
                       dims_text(offsets(place)), place.rank, dims_text(first), rank, dims_text(sizes)),
           plan_of(rank).names()[item.name]);
  }

  const std::vector<LocalPlan>& ranks_;
  Proposals out_;
  IndexTable names_, places_;
  std::vector<int32_t> follower_ = {
      -1};                  // of group g at g + 1: the one that came after it last; at 0: the first
  int32_t last_group_ = 0;  // as an index of follower_
};

}  // namespace

Proposals number_proposals(const std::vector<LocalPlan>& ranks) { return Numbering(ranks).run(); }

}  // namespace milepost
