#include "milepost/data/datasets.h"

#include <algorithm>
#include <array>

#include "milepost/base/error.h"
#include "milepost/data/documents.h"

namespace milepost::data {
namespace {

struct Entry {
  std::string_view name;
  std::string_view path;    // "": the user has to give one
  std::string_view prefix;  // of the files' names
  Split split;
  std::string_view content;
};

constexpr std::array<Entry, 4> kEntries{{
    {"c4", "", "c4-train.", Split::kStreaming, "the training files of allenai/c4 (en/c4-train.*.json.gz)"},
    {"c4_test", "tests/assets/c4_test", "", Split::kMapStyle, ""},
    {"c4_validation", "", "c4-validation.", Split::kStreaming,
     "the validation files of allenai/c4 (en/c4-validation.*.json.gz)"},
    {"text", "", "", Split::kMapStyle, "JSON lines or Parquet files"},
}};

const Entry& find_entry(std::string_view name) {
  std::string lower(name);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  std::string known;
  for (const Entry& entry : kEntries) {
    if (entry.name == lower) return entry;
    known += (known.empty() ? "'" : ", '") + std::string(entry.name) + "'";
  }
  throw ValueError("Dataset " + printable(lower) + " is not supported. Supported datasets are: [" + known +
                   "]");
}

}  // namespace

Dataset find_dataset(Storage& storage, std::string_view name, const std::string& path) {
  const Entry& entry = find_entry(name);
  if (path.empty() && entry.path.empty()) {
    throw ValueError("Dataset " + std::string(entry.name) + " is read from a local copy, and none is named",
                     "fetch " + std::string(entry.content) +
                         " to a folder and name it with --dataloader.dataset-path FOLDER");
  }
  Dataset dataset{.name = std::string(entry.name),
                  .path = path.empty() ? std::string(entry.path) : path,
                  .files = {},
                  .split = entry.split};
  dataset.files = find_data_files(storage, dataset.path, std::string(entry.prefix));
  return dataset;
}

}  // namespace milepost::data
