#include "milepost/storage/directories.h"

namespace milepost {

void make_directories(Storage& storage, const std::string& path) {
  const auto there = storage.stat(path);
  if (there && there->is_directory) return;
  const std::string parent = parent_path(path);
  if (!there && parent != path) make_directories(storage, parent);
  storage.make_directory(path);
  storage.sync_directory(parent);
}

}  // namespace milepost
