// Folders that come with Milepost (tokenizers, sample text), which configurations name by relative paths.
#pragma once

#include <string>

namespace milepost::config {

// `path` as it is, or below the folder of the environment's MILEPOST_ROOT where it exists only there, so that
// these folders are found from any working directory. Reads the environment and looks at the file system.
// Threads: any, as long as none changes the environment.
std::string find_bundled(const std::string& path);

}  // namespace milepost::config
