// What `milepost inspect` knows of a checkpoint before it prints: pure counting over the catalog.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "milepost/engine/checkpoint.h"

namespace milepost::cli {

struct Totals {
  int64_t tensors = 0, objects = 0;
  int64_t elements = 0, bytes = 0;  // of the tensors; saturating
};

struct Summary {
  Totals all;
  // "model", "optimizer", "lr_scheduler", "dataloader", "train_state", "ema", "milepost", in this order, as
  // far as present.
  std::vector<std::pair<std::string, Totals>> groups;
  std::vector<std::pair<DType, Totals>> dtypes;  // most bytes first
  int64_t chunks = 0;
  int64_t file_bytes = 0;                  // of the files that are there
  std::vector<std::string> missing_files;  // named by the index, absent
};
Summary summarise(const Checkpoint& checkpoint);

// One listed entry, in the checkpoint's order.
struct Entry {
  bool is_object = false;
  int64_t index = 0;  // of the catalog's tensors or objects
};
// Those whose names match one of the globs; all when there are none.
std::vector<Entry> select_entries(const Catalog& catalog, const std::vector<std::string>& globs);

const std::string& entry_name(const Catalog& catalog, const Entry& entry);

}  // namespace milepost::cli
