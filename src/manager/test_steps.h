// For tests of the manager: folders of steps in memory.
#pragma once

#include <string>
#include <vector>

#include "milepost/engine/save.h"
#include "milepost/engine/snapshot.h"
#include "milepost/manager/entries.h"
#include "milepost/manager/policy.h"
#include "milepost/storage/storage.h"

namespace milepost::manager {

class TestSteps {
 public:
  StorageLocation where{memory_storage(), "/run"};

  TestSteps() { where.storage->make_directory(where.path); }

  // A checkpoint with the model and the parts named; `is_ours`: it says that Milepost wrote it.
  void add(int64_t step, const std::vector<std::string>& parts, bool is_ours = false) {
    SnapshotBuilder builder;
    builder.add_tensor("w", DType::kFloat32, Dims{2}, Box::whole(Dims{2}));
    builder.add_piece(Box::whole(Dims{2}), std::as_bytes(std::span(values)));
    for (const std::string& part : parts) builder.add_object(part + ".x", builder.values().integer(1));
    if (is_ours) builder.add_object(std::string(kRunKey), builder.values().string("{}"));
    const Snapshot snapshot = std::move(builder).finish();
    save_dcp({where.storage, step_path(where.path, step)}, {snapshot.plan}, {snapshot.checkpoint}, {}, false);
  }
  void add_full(int64_t step) { add(step, {"optimizer", "lr_scheduler", "dataloader", "train_state"}); }

  void write(const std::string& path, const std::string& text) const {
    const std::string full = join_path(where.path, path);
    where.storage->make_directory(parent_path(full));
    const auto file = where.storage->open_write(full, {static_cast<int64_t>(text.size()), false});
    const Bytes bytes = as_bytes(text);
    file->write_at(0, {&bytes, 1});
    file->close();
  }

  std::vector<float> values = {1, 2};
};

}  // namespace milepost::manager
