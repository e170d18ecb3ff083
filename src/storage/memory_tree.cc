#include "storage/memory_tree.h"

#include <algorithm>
#include <random>
#include <set>

#include "storage/errno_error.h"

namespace milepost {
namespace {

constexpr size_t kPageBytes = 4096;  // what a disk writes as a whole

std::vector<std::string> components(std::string_view path) {
  std::vector<std::string> names;
  while (!path.empty()) {
    const size_t slash = path.find('/');
    const std::string_view name = path.substr(0, slash);
    path.remove_prefix(slash == std::string_view::npos ? path.size() : slash + 1);
    if (name == "..") {
      if (!names.empty()) names.pop_back();
    } else if (!name.empty() && name != ".") {
      names.emplace_back(name);
    }
  }
  return names;
}

void set_entry(std::map<std::string, MemoryNodePtr, std::less<>>& entries, const NameChange& change) {
  if (change.node == nullptr) {
    entries.erase(change.name);
  } else {
    entries[change.name] = change.node;
  }
}

bool touches(const NameChanges& changes, const std::set<const MemoryNode*>& folders) {
  return std::any_of(changes.begin(), changes.end(),
                     [&](const NameChange& change) { return folders.contains(change.folder.get()); });
}

void add_folders(const NameChanges& changes, std::set<const MemoryNode*>& folders) {
  for (const NameChange& change : changes) folders.insert(change.folder.get());
}

// What a power cut makes of one disk: which pending changes survive, and which pages.
class PowerCutCopy {
 public:
  PowerCutCopy(SimulatedDisk::Survival survival, uint64_t seed) : survival_(survival), random_(seed) {}

  void choose_changes(const std::vector<NameChanges>& pending) {
    std::set<const MemoryNode*> stopped;  // folders of which a change was lost, and so all later ones
    for (const NameChanges& changes : pending) {
      if (touches(changes, stopped) || !survives()) {
        add_folders(changes, stopped);
        continue;
      }
      for (const NameChange& change : changes) set_entry(entries_of(*change.folder), change);
    }
  }

  MemoryNodePtr copy(const MemoryNode& node) {
    auto copied = std::make_shared<MemoryNode>();
    copied->is_directory = node.is_directory;
    if (!node.is_directory) copied->content = choose_content(node);
    for (const auto& [name, child] : entries_of(node)) copied->entries[name] = copy(*child);
    copied->durable_content = copied->content;
    copied->durable_entries = copied->entries;
    return copied;
  }

 private:
  using Entries = std::map<std::string, MemoryNodePtr, std::less<>>;

  Entries& entries_of(const MemoryNode& folder) {
    return entries_.try_emplace(&folder, folder.durable_entries).first->second;
  }

  bool survives() {
    if (survival_ == SimulatedDisk::Survival::kRandom) return random_() % 2 == 0;
    return survival_ == SimulatedDisk::Survival::kKeepAll;
  }

  ByteVector choose_content(const MemoryNode& file) {
    ByteVector content = file.durable_content;
    if (survives()) content.resize(file.content.size());
    for (size_t begin = 0; begin < std::min(content.size(), file.content.size()); begin += kPageBytes) {
      const size_t end = std::min({begin + kPageBytes, content.size(), file.content.size()});
      if (survives()) std::copy_n(file.content.begin() + begin, end - begin, content.begin() + begin);
    }
    return content;
  }

  const SimulatedDisk::Survival survival_;
  std::mt19937_64 random_;
  std::map<const MemoryNode*, Entries> entries_;
};

}  // namespace

MemoryNodePtr MemoryTree::Place::node() const {
  const auto found = folder->entries.find(name);
  return found == folder->entries.end() ? nullptr : found->second;
}

MemoryTree::MemoryTree(bool tracks_durability)
    : tracks_durability_(tracks_durability), root_(std::make_shared<MemoryNode>()) {
  root_->is_directory = true;
}

MemoryNodePtr MemoryTree::find(std::string_view path) const {
  MemoryNodePtr node = root_;
  for (const std::string& name : components(path)) {
    const auto found = node->entries.find(name);  // a file has no entries
    if (found == node->entries.end()) return nullptr;
    node = found->second;
  }
  return node;
}

MemoryTree::Place MemoryTree::place(std::string_view what_failed, const std::string& path) const {
  std::vector<std::string> names = components(path);
  if (names.empty()) throw errno_error(std::string(what_failed), path, EBUSY);
  Place place{root_, std::move(names.back())};
  names.pop_back();
  for (const std::string& name : names) {
    const auto found = place.folder->entries.find(name);
    if (found == place.folder->entries.end()) throw errno_error(std::string(what_failed), path, ENOENT);
    place.folder = found->second;
    if (!place.folder->is_directory) throw errno_error(std::string(what_failed), path, ENOTDIR);
  }
  return place;
}

void MemoryTree::apply(const NameChanges& changes) {
  for (const NameChange& change : changes) set_entry(change.folder->entries, change);
  if (tracks_durability_) pending_.push_back(changes);
}

void MemoryTree::sync_file(MemoryNode& file) {
  if (tracks_durability_) file.durable_content = file.content;
}

void MemoryTree::sync_folder(const MemoryNodePtr& folder) {
  std::set<const MemoryNode*> folders{folder.get()};
  std::vector<bool> is_synced(pending_.size());
  for (size_t i = pending_.size(); i-- > 0;) {
    is_synced[i] = touches(pending_[i], folders);
    if (is_synced[i]) add_folders(pending_[i], folders);
  }
  std::vector<NameChanges> rest;
  for (size_t i = 0; i < pending_.size(); ++i) {
    if (!is_synced[i]) {
      rest.push_back(std::move(pending_[i]));
      continue;
    }
    for (const NameChange& change : pending_[i]) set_entry(change.folder->durable_entries, change);
  }
  pending_ = std::move(rest);
}

MemoryTree MemoryTree::after_power_cut(SimulatedDisk::Survival survival, uint64_t seed) const {
  PowerCutCopy cut(survival, seed);
  cut.choose_changes(pending_);
  MemoryTree after(tracks_durability_);
  after.root_ = cut.copy(*root_);
  return after;
}

}  // namespace milepost
