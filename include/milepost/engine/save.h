// Saving in four steps: plan_local -> plan_global -> write -> commit. Each takes and gives plain values, so
// that ranks may be a vector, c10d processes or torch's own machinery.
//
//   LocalPlan plan = ...;                                  // each rank: what it holds (plan/save_plan.h)
//   GlobalPlan all = plan_global(plans);                   // coordinator
//   RankResult r = write_rank(folder, all, rank, ...);     // each rank: its data files, synced
//   write_metadata_file(folder, all, results);             // coordinator: .metadata, synced; then
//   StagedOutput::commit()
//
// With WriteOptions::hash_files the files are hashed as they are written, and a manifest goes with them
// (engine/manifest_files.h): mark_pending(folder) before the first file; write_metadata_file does the rest.
//
// `save_dcp` does all of it for ranks in one process.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "milepost/base/checksum.h"
#include "milepost/base/progress.h"
#include "milepost/engine/checkpoint.h"
#include "milepost/plan/save_plan.h"
#include "milepost/storage/storage.h"

namespace milepost {

struct WriteOptions {
  int num_threads = 0;                            // 0: default_num_threads()
  int64_t max_memory_bytes = int64_t{128} << 20;  // all buffers together
  // 0: one, or four from 64 MiB on, so that several threads can write at once. Four where files are hashed,
  // so that their streams interleave on a core.
  int files_per_rank = 0;
  bool hash_files = false;  // SHA-256 of every file, of the bytes as they pass
  bool sync = true;
  bool direct = true;  // O_DIRECT where the file system has it
  Progress* progress = nullptr;
};

// Where a rank's written items ended up, in the order of GlobalPlan::targets[rank].
struct RankResult {
  std::vector<std::string> files;
  std::vector<int64_t> file_sizes;
  std::vector<Sha256Digest> digests;  // of the files; empty unless they were hashed
  struct Place {
    int32_t file;
    int64_t offset, length;
  };
  std::vector<Place> places;
};

// Writes the data files of `rank` into `folder` of `storage`, reading values from `source`: the tensor of the
// same name, cast to the plan's dtype where that differs. Throws StorageError, FormatError.
RankResult write_rank(Storage& storage, const std::string& folder, const GlobalPlan& plan, int64_t rank,
                      const std::shared_ptr<const Checkpoint>& source, const WriteOptions& options);

// Fills the plan's catalog with all ranks' results and writes `.metadata` (synced). `checkpoint_id`: the
// final folder's name. Where the results have digests, writes the manifest of all these files as well, and
// removes the pending marker. Returns the number of files that the manifest lists; 0: there is none.
int64_t write_metadata_file(Storage& storage, const std::string& folder, GlobalPlan& plan,
                            const std::vector<RankResult>& results, const std::string& checkpoint_id,
                            bool sync);

// All four steps for ranks in one process, staged and published at `destination`. `sources[r]` holds what
// rank r proposes (one entry: all ranks share it).
void save_dcp(const StorageLocation& destination, const std::vector<LocalPlan>& plans,
              const std::vector<std::shared_ptr<const Checkpoint>>& sources, const WriteOptions& options,
              bool overwrite);

}  // namespace milepost
