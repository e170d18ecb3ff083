#include "tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <memory>
#include <unordered_map>

#include "milepost/base/error.h"

namespace milepost::cli {
namespace {

// A name with more dots keeps its rest as one component, so that recursion is bounded whatever a file holds.
constexpr int kMaxDepth = 64;
constexpr size_t kMinMergedObjects = 4, kMinMergedTensors = 2;
constexpr int64_t kMinCollapsedObjects = 16;
constexpr size_t kMaxMergedWidth = 48;
constexpr size_t kMaxRangesWidth = 40;

struct Node {
  std::vector<std::pair<std::string_view, std::unique_ptr<Node>>> children;  // in order of first appearance
  std::unordered_map<std::string_view, Node*> index;
  const TreeEntry* entry = nullptr;          // the entry of exactly this name
  int64_t shape_id = 0;                      // equal for subtrees that are alike
  int64_t num_objects = 0, num_tensors = 0;  // of the whole subtree

  Node* child(std::string_view name) {
    Node*& known = index[name];
    if (known == nullptr) {
      children.emplace_back(name, std::make_unique<Node>());
      known = children.back().second.get();
    }
    return known;
  }
  bool is_leaf() const { return children.empty() && entry != nullptr; }
  // Whether it is all objects, and more than one would like to see line by line.
  bool is_collapsed() const {
    return entry == nullptr && num_tensors == 0 && num_objects >= kMinCollapsedObjects;
  }
};

void insert(Node& root, const TreeEntry& entry) {
  Node* node = &root;
  std::string_view rest = entry.name;
  for (int depth = 1; depth < kMaxDepth; ++depth) {
    const size_t dot = rest.find('.');
    if (dot == std::string_view::npos) break;
    node = node->child(rest.substr(0, dot));
    rest.remove_prefix(dot + 1);
  }
  node->child(rest)->entry = &entry;
}

// Numbers subtrees by what they hold: two nodes get the same id exactly when they are alike.
class Shapes {
 public:
  void number(Node& node) {
    std::string key = describe(node.entry);
    if (node.entry != nullptr) ++(node.entry->is_object ? node.num_objects : node.num_tensors);
    for (auto& [name, child] : node.children) {
      number(*child);
      node.num_objects += child->num_objects;
      node.num_tensors += child->num_tensors;
      key += fmt::format("\n{} {} {}", name.size(), name, child->shape_id);
    }
    node.shape_id = ids_.try_emplace(std::move(key), static_cast<int64_t>(ids_.size())).first->second;
  }

 private:
  static std::string describe(const TreeEntry* entry) {
    if (entry == nullptr) return "-";
    if (entry->is_object) return "object";
    return fmt::format("{} {}", dtype_name(entry->dtype), dims_text(entry->shape));
  }
  std::unordered_map<std::string, int64_t> ids_;
};

// Siblings that are shown as one component.
struct Group {
  std::string_view prefix;       // of the component, without its number
  std::vector<int64_t> numbers;  // empty: the component has none
  Node* node;                    // the first
};

// Whether a component ends in a number that stands for a position: "3", "dp_rank_3", but not "w1" or "007".
bool split_number(std::string_view component, std::string_view* prefix, int64_t* number) {
  size_t start = component.size();
  while (start > 0 && component[start - 1] >= '0' && component[start - 1] <= '9') --start;
  const std::string_view digits = component.substr(start);
  if (digits.empty() || digits.size() > 18 || (digits.size() > 1 && digits[0] == '0')) return false;
  if (start > 0 && component[start - 1] != '_') return false;
  *prefix = component.substr(0, start);
  std::from_chars(digits.data(), digits.data() + digits.size(), *number);
  return true;
}

std::vector<Group> group_children(Node& node) {
  std::vector<Group> groups;
  std::map<std::pair<std::string_view, int64_t>, size_t> known;  // prefix and shape -> group
  for (auto& [name, child] : node.children) {
    std::string_view prefix;
    int64_t number = 0;
    if (!split_number(name, &prefix, &number)) {
      groups.push_back({name, {}, child.get()});
      continue;
    }
    const auto [it, added] = known.try_emplace({prefix, child->shape_id}, groups.size());
    if (added) groups.push_back({prefix, {}, child.get()});
    groups[it->second].numbers.push_back(number);
  }
  for (Group& group : groups) std::sort(group.numbers.begin(), group.numbers.end());
  return groups;
}

std::string component_text(const Group& group) {
  std::string text = printable(group.prefix);
  if (group.numbers.size() == 1) return text + fmt::format("{}", group.numbers[0]);
  if (!group.numbers.empty()) text += fmt::format("[{}]", ranges_text(group.numbers));
  return text;
}

int64_t group_size(const Group& group) {
  return std::max<int64_t>(1, static_cast<int64_t>(group.numbers.size()));
}

std::string joined(const std::string& path, bool is_top, const std::string& component) {
  return is_top ? component : path + "." + component;
}

std::string braced(const Group* begin, const Group* end) {
  std::string text;
  for (const Group* group = begin; group != end; ++group) {
    const std::string component = component_text(*group);
    if (text.size() + component.size() > kMaxMergedWidth) {
      text += ", ...";
      break;
    }
    text += (text.empty() ? "" : ", ") + component;
  }
  return "{" + text + "}";
}

bool alike(const Node& a, const Node& b) { return a.is_leaf() && b.is_leaf() && a.shape_id == b.shape_id; }

const TreeEntry* first_entry(const Node& node) {
  return node.entry != nullptr ? node.entry : first_entry(*node.children.front().second);
}

void emit(Node& node, const std::string& path, bool is_top, int64_t count, std::vector<TreeLine>* lines);

// One group by itself.
void emit_group(const Group& group, const std::string& name, int64_t count, std::vector<TreeLine>* lines) {
  if (group.node->is_collapsed() && !group.node->children.front().second->is_leaf()) {
    lines->push_back({name + ".*", first_entry(*group.node), count * group.node->num_objects});
    return;
  }
  if (group.node->entry != nullptr) lines->push_back({name, group.node->entry, count});
  emit(*group.node, name, false, count, lines);
}

// All groups below `node`, which stands for `count` nodes.
void emit(Node& node, const std::string& path, bool is_top, int64_t count, std::vector<TreeLine>* lines) {
  const std::vector<Group> groups = group_children(node);
  for (size_t i = 0; i < groups.size();) {
    size_t end = i + 1;
    int64_t merged = group_size(groups[i]);
    while (end < groups.size() && alike(*groups[i].node, *groups[end].node))
      merged += group_size(groups[end++]);
    const bool is_object = groups[i].node->entry != nullptr && groups[i].node->entry->is_object;
    if (end - i >= (is_object ? kMinMergedObjects : kMinMergedTensors)) {
      const std::string name = joined(path, is_top, braced(&groups[i], groups.data() + end));
      lines->push_back({name, groups[i].node->entry, count * merged});
      i = end;
      continue;
    }
    for (; i < end; ++i) {
      const std::string name = joined(path, is_top, component_text(groups[i]));
      emit_group(groups[i], name, count * group_size(groups[i]), lines);
    }
  }
}

}  // namespace

std::string ranges_text(const std::vector<int64_t>& numbers) {
  std::string text;
  for (size_t i = 0; i < numbers.size();) {
    size_t end = i;
    while (end + 1 < numbers.size() && numbers[end + 1] == numbers[end] + 1) ++end;
    const std::string range =
        end == i ? fmt::format("{}", numbers[i]) : fmt::format("{}-{}", numbers[i], numbers[end]);
    if (text.size() + range.size() > kMaxRangesWidth) return text + fmt::format(",...,{}", numbers.back());
    text += (text.empty() ? "" : ",") + range;
    i = end + 1;
  }
  return text;
}

std::vector<TreeLine> fold(const std::vector<TreeEntry>& entries) {
  Node root;
  for (const TreeEntry& entry : entries) insert(root, entry);
  Shapes().number(root);
  std::vector<TreeLine> lines;
  emit(root, {}, true, 1, &lines);
  return lines;
}

}  // namespace milepost::cli
