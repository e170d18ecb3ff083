// The `.metadata` files under tests/data.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace milepost::dcp::testing {

inline std::string file_content(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline std::filesystem::path test_data(const std::string& relative) {
  return std::filesystem::path(MILEPOST_TEST_DATA) / relative;
}

// Of the good checkpoints, sorted.
inline std::vector<std::filesystem::path> good_metadata_files() {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(test_data("dcp"))) {
    if (entry.path().filename().string().ends_with(".metadata")) paths.push_back(entry.path());
  }
  paths.push_back(test_data("bad/metadata-odd-keys/ckpt/.metadata"));
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace milepost::dcp::testing
