// convert and reshard: any checkpoint into any format and layout, in bounded memory, staged and published
// whole.
//
// Threads: one call at a time for a destination (StorageError kLocked else), any number for a source.
// Durability: with `sync` the result survives a power cut once convert has returned; see storage/staging.h.
// Cost: reads each selected byte once and writes it once; the index of source and result is in memory besides
// the buffers.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "milepost/base/progress.h"
#include "milepost/catalog/layout.h"
#include "milepost/engine/checkpoint.h"
#include "milepost/format/manifest.h"

namespace milepost {

// A small file that goes with the output, such as config.json.
struct CompanionFile {
  std::string name;  // a plain name
  std::string content;
};

struct ConvertOptions {
  CheckpointFormat to = CheckpointFormat::kDcp;
  std::optional<DType> dtype;                // cast floating tensors of the model (is_model_key) to this
  std::vector<std::string> match;            // globs; empty: everything
  int64_t shard_size_bytes = 5'000'000'000;  // safetensors: largest file's payload
  // safetensors, folder: which file each tensor goes to, rather than by size. Every tensor must be in it.
  std::vector<std::pair<std::string, std::string>> weight_map;
  bool always_index = false;              // safetensors, folder: an index for a single file too
  std::vector<CompanionFile> companions;  // safetensors, folder
  int files = 0;                          // DCP: data files a rank; 0: one, or four from 64 MiB on
  int64_t max_memory_bytes = int64_t{128} << 20;
  int num_threads = 0;
  bool skip_unsupported = false;  // drop what the target cannot hold, listed in the report
  bool overwrite = false;
  // Continue what an interrupted conversion of the same source and options to the same place left; see
  // convert(). Threads, memory and sync may differ.
  bool resume = false;
  bool sync = true;  // false: leave durability to the system
  bool dry_run = false;
  // DCP only: the ranks to write for. Default one rank.
  Mesh mesh = {{"rank"}, {1}};
  std::vector<PlacementRule>
      placements;  // empty: Shard(0) on the first mesh dimension, replicated on the others
  Progress* progress = nullptr;
};

struct ConvertReport {
  struct File {
    std::string name;
    int64_t size_bytes;
  };
  std::vector<File> files;
  std::vector<std::string> skipped;  // "name: why"
  std::vector<std::string> warnings;
  int64_t tensors = 0, objects = 0, casts = 0;
  int64_t bytes_in = 0, bytes_out = 0;
  int64_t bytes_resumed = 0;  // of bytes_out: found whole from an interrupted conversion, not written again
  int64_t peak_buffer_bytes = 0;  // planned
  int64_t disk_bytes_needed = 0, disk_bytes_free = 0;
  double seconds = 0;
  manifest::Hashes hashes;  // see ConvertShare
};

// Writes `source` to `dst`. Throws FormatError kUnsupported with the whole list when the target cannot hold
// something and not skip_unsupported; StorageError kNoSpace before anything is written when the disk is too
// small; kExists; ValueError for options out of range, for a glob that matches nothing, and for a dtype where
// values are codes of block quantisation (key); FormatError for unsound sources (overlaps, holes, missing
// files: checked first). On any failure the old state at `dst` is intact.
//
// Ended by a full disk, an I/O error or progress.cancel after 256 MiB, it leaves what it wrote, with a
// journal, in the staging folder (the hint says so), and killed anyway. The next conversion to `dst` removes
// that, or with `resume` goes on from it: blocks of the output that are as the journal says are kept
// (bytes_resumed); blocks that are not, whatever happened to them, are written again. ValueError kBadArgument
// (path) when the source's files have other names, sizes or times than then, or the output would be another;
// where there is nothing to resume, a warning. A resumed one leaves what it wrote on any failure.
ConvertReport convert(const std::shared_ptr<const Checkpoint>& source, const StorageLocation& dst,
                      const ConvertOptions& options);
// One of several workers' share of a conversion.
struct ConvertShare {
  int64_t index, count;
  bool hash_files = false;  // the report then has the hashes of the files that this share has written
};
// Writes some files of what convert() would write into a folder: those whose number modulo share.count is
// share.index, and with the first share what lies beside them (index, companions). Workers that do this for
// all shares, into one folder, write what convert() does. `folder` exists, staged and published by the
// caller; overwrite and resume are not looked at. The report's files and bytes are those of all shares, small
// files left out. Throws as convert() does; what was written so far then stays.
ConvertReport convert_part(const std::shared_ptr<const Checkpoint>& source, const StorageLocation& folder,
                           const ConvertOptions& options, ConvertShare share);
// `dst`: a path or URI as resolve_location() takes it.
ConvertReport convert(const std::shared_ptr<const Checkpoint>& source, std::string_view dst,
                      const ConvertOptions& options);

}  // namespace milepost
