#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "milepost/base/error.h"
#include "milepost/plan/save_plan.h"
#include "plan/place_hash.h"

namespace milepost {
namespace {

[[noreturn]] void refuse(std::string what, std::string_view name) {
  ValueError error(std::move(what));
  error.set_key(name);
  throw error;
}

}  // namespace

int32_t NameList::intern(std::string_view name) {
  const auto next = static_cast<int32_t>(ends_.size());
  const auto equal = [&](int32_t i) { return (*this)[i] == name; };
  const int32_t index = table_.find_or_add(std::hash<std::string_view>{}(name), next, equal);
  if (index == next) {
    text_ += name;
    ends_.push_back(text_.size());
  }
  return index;
}

void LocalPlan::add_tensor(std::string_view name, DType dtype, DimsView shape, const Box& box) {
  if (box.offsets.size() != shape.size() || box.sizes.size() != shape.size()) {
    refuse(fmt::format("box {} of a tensor of shape {}", box_text(box), dims_text(shape)), name);
  }
  const auto first_dim = static_cast<int64_t>(dims_.size());
  dims_.insert(dims_.end(), shape.begin(), shape.end());
  dims_.insert(dims_.end(), box.offsets.begin(), box.offsets.end());
  dims_.insert(dims_.end(), box.sizes.begin(), box.sizes.end());
  add({names_.intern(name), static_cast<int32_t>(shape.size()), first_dim, dtype});
}

void LocalPlan::add_object(std::string_view name) { add({names_.intern(name), -1, 0, DType::kFloat32}); }

// The items of a name that occurs once need no table: the rule for nearly all.
void LocalPlan::add(const Item& item) {
  const auto index = static_cast<int32_t>(items_.size());
  const auto name = static_cast<size_t>(item.name);
  items_.push_back(item);
  if (name == first_item_.size()) {
    first_item_.push_back(index);
    return;
  }
  const auto insert = [&](int32_t i) {
    const Item& added = items_[static_cast<size_t>(i)];
    return places_.find_or_add(place_hash(added.name, offsets(added)), i, [&](int32_t other) {
      const Item& earlier = items_[static_cast<size_t>(other)];
      return earlier.name == added.name && std::ranges::equal(offsets(earlier), offsets(added));
    });
  };
  int32_t& first = first_item_[name];
  const bool in_places = first < 0;
  const Item& earlier = items_[static_cast<size_t>(in_places ? -1 - first : first)];
  if ((earlier.ndim < 0) != (item.ndim < 0))
    refuse("proposed both as a tensor and as an object", names_[item.name]);
  if (!in_places) insert(std::exchange(first, -1 - first));
  if (insert(index) != index) {
    refuse(item.ndim < 0 ? "the object is proposed twice"
                         : fmt::format("two boxes start at {}", dims_text(offsets(item))),
           names_[item.name]);
  }
}

}  // namespace milepost
