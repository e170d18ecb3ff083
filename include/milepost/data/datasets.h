// The data sets that go by a name, as in TorchTitan's configuration, and where their files are.
//
// Only folders are listed, nothing is read; any thread may call it.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "milepost/data/document_order.h"
#include "milepost/storage/storage.h"

namespace milepost::data {

struct Dataset {
  std::string name;  // as the table spells it
  std::string path;
  std::vector<std::string> files;  // in the order in which they are read
  Split split = Split::kMapStyle;
};

// `name` (case does not matter): c4_test, the documents in the source tree, found from the working directory;
// c4 and c4_validation, files of allenai/c4 (English) that were fetched before, at `path`; text, any files,
// at `path`. `path`, when not empty, overrides the table's. Throws ValueError for an unknown name and for a
// data set that needs a path; what find_data_files throws.
Dataset find_dataset(Storage& storage, std::string_view name, const std::string& path);

}  // namespace milepost::data
