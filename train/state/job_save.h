// Saving a snapshot of a job, all ranks together, staged and published whole. An error on one rank is an
// error on all, and what lay at the destination stays, or nothing lies there; where only the last sync of the
// folder above failed, the new one does, whole.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "milepost/engine/snapshot.h"
#include "milepost/flavor/flavor.h"
#include "milepost/storage/storage.h"
#include "train/state/together.h"

namespace milepost::train {

// May be empty. Told once, on the first rank, of all ranks' data files, when they are synced: their bytes,
// and the seconds that it took.
using Written = std::function<void(int64_t bytes, double seconds)>;

// As the first rank knows it.
struct SavedFiles {
  int64_t bytes = 0;       // of all data files, or of all files of safetensors
  int64_t num_hashes = 0;  // in the manifest; 0: there is none
};

// As DCP: the engine's four steps, each of `ranks` its part. nullopt, on all ranks: the destination is pinned
// (manager/pins.h) and stays as it is. `hash_files`: with a manifest, each rank hashing
// what it writes. Threads: the one that issues the collectives of `ranks`.
std::optional<SavedFiles> write_dcp(const StorageLocation& destination, const Snapshot& snapshot,
                                    int64_t rank, const Together& ranks, bool hash_files,
                                    const Written& written);

// A model's snapshot as safetensors under Hugging Face's names, floating tensors as `dtype`, with an index
// and a config.json: the same files for any number of ranks. Ranks write their parts as DCP into a folder
// `sharded` beside the files to be; then each makes the files whose number modulo the number of ranks is its
// own from all parts, and the folder goes. So no rank needs memory for more than buffers, at the price of
// writing and reading the model once more. Otherwise as write_dcp().
std::optional<SavedFiles> write_hugging_face(const StorageLocation& destination, const Snapshot& snapshot,
                                             const flavor::Model& model, DType dtype, int64_t rank,
                                             const Together& ranks, bool hash_files);

}  // namespace milepost::train
