// For tests of staging: whole folders, written from a map, and two that may stand for checkpoints.
#pragma once

#include <map>
#include <string>

#include "storage/test_files.h"

namespace milepost {

// As read_content() has it.
using Content = std::map<std::string, std::string>;

inline const Content kOld{{".metadata", "old"}, {"__0_0.distcp", "old data"}};
inline const Content kNew{
    {".metadata", "new"}, {"__0_0.distcp", "new data"}, {"sharded/", ""}, {"sharded/a.safetensors", "x"}};

inline void make_folder(Storage& storage, const std::string& folder, const Content& content) {
  storage.make_directory(folder);
  for (const auto& [name, text] : content) {
    const std::string path = join_path(folder, name);
    name.ends_with('/') ? storage.make_directory(path) : write_file(storage, path, text);
  }
}

// The content of the folder above `folder`, where that is all.
inline Content below(const std::string& folder, const Content& content) {
  Content prefixed{{folder + "/", ""}};
  for (const auto& [name, text] : content) prefixed[folder + "/" + name] = text;
  return prefixed;
}

}  // namespace milepost
