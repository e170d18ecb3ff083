// Configuration files on disk.
#pragma once

#include <string>
#include <string_view>

namespace milepost::train {

// The content of a configuration file. Throws StorageError, or FormatError (kTooLarge) above 1 MiB.
std::string read_config_file(const std::string& path);

// Writes `text` as `folder`/`name` (an absolute name stands for itself) and makes missing folders. The file
// appears whole or not at all; a power cut may lose it. Returns its path; throws StorageError.
std::string write_config_file(const std::string& folder, const std::string& name, std::string_view text);

}  // namespace milepost::train
