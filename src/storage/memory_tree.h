// The files and folders behind MemoryStorage and SimulatedDisk.
//
// Each folder keeps two lists of names: the present one, and the one that would be found after a power
// cut; `pending` holds the changes that lead from the second to the first, in order. Each file keeps two
// contents likewise. Where `tracks_durability` is false the second of both stays empty, and so does
// `pending`.
//
// Threads: none of this locks; MemoryStorage does.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "milepost/base/bytes.h"
#include "milepost/storage/simulated_disk.h"

namespace milepost {

struct MemoryNode;
using MemoryNodePtr = std::shared_ptr<MemoryNode>;

struct MemoryNode {
  bool is_directory = false;
  std::map<std::string, MemoryNodePtr, std::less<>> entries, durable_entries;
  ByteVector content, durable_content;
  bool is_locked = false;
};

// `folder` lists `node` as `name` from now on, or nothing when it is null.
struct NameChange {
  MemoryNodePtr folder;
  std::string name;
  MemoryNodePtr node;
};
using NameChanges = std::vector<NameChange>;  // all at once

class MemoryTree {
 public:
  explicit MemoryTree(bool tracks_durability);

  // Null when nothing is there. Relative paths start at "/", ".." goes up, nothing is above "/".
  MemoryNodePtr find(std::string_view path) const;
  // The folder that holds `path`, which need not exist itself. Throws StorageError, beginning with
  // `what_failed`.
  struct Place {
    MemoryNodePtr folder;
    std::string name;
    MemoryNodePtr node() const;
  };
  Place place(std::string_view what_failed, const std::string& path) const;

  void apply(const NameChanges& changes);
  void sync_file(MemoryNode& file);
  // Makes durable all changes of `folder`, and those that came before them in any folder they share a change
  // with.
  void sync_folder(const MemoryNodePtr& folder);

  MemoryTree after_power_cut(SimulatedDisk::Survival survival, uint64_t seed) const;

 private:
  bool tracks_durability_;
  MemoryNodePtr root_;
  std::vector<NameChanges> pending_;
};

}  // namespace milepost
