#include "milepost/config/bundled.h"

#include <cstdlib>
#include <filesystem>

namespace milepost::config {

std::string find_bundled(const std::string& path) {
  const char* root = std::getenv("MILEPOST_ROOT");
  if (root == nullptr || std::filesystem::exists(path)) return path;
  const std::filesystem::path below = std::filesystem::path(root) / path;
  return std::filesystem::exists(below) ? below.lexically_normal().string() : path;
}

}  // namespace milepost::config
