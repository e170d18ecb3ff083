#include "format/dcp_metadata_checks.h"

#include <fmt/format.h>

#include "format/dcp_names.h"
#include "milepost/base/error.h"

namespace milepost::dcp {

bool is_inside_folder(std::string_view path) {
  if (path.find('\0') != std::string_view::npos) return false;
  while (true) {
    const size_t slash = path.find('/');
    const std::string_view name = path.substr(0, slash);
    if (name.empty() || name == "." || name == "..") return false;
    if (slash == std::string_view::npos) return true;
    path.remove_prefix(slash + 1);
  }
}

void conclude(const Strays& storage_entries, const Strays& paths, bool has_storage_meta, Metadata* metadata) {
  if (!metadata->version.empty() && metadata->version != kVersion) {
    metadata->warnings.push_back(fmt::format("the metadata is of version '{}', this reader knows {}",
                                             printable(metadata->version), kVersion));
  }
  if (storage_entries.count > 0) {
    metadata->warnings.push_back(fmt::format("{} storage entries belong to no chunk or object, first '{}'",
                                             storage_entries.count, printable(storage_entries.first)));
  }
  if (paths.count > 0) {
    metadata->warnings.push_back(
        fmt::format("{} entries of planner_data name nothing that is stored, first '{}'", paths.count,
                    printable(paths.first)));
  }
  metadata->writer = !metadata->version.empty() ? "torch >= 2.9"
                     : has_storage_meta         ? "torch 2.4 to 2.8"
                                                : "torch 2.1 to 2.3";
}

}  // namespace milepost::dcp
