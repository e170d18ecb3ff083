// verify: everything that can be wrong with a checkpoint, in one report.
//
// Unlike the other operations, which stop at the first fault, this one goes on: a damaged item does not hide
// the next one, and a missing file is named with the entries that need it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "milepost/base/error.h"
#include "milepost/base/progress.h"
#include "milepost/engine/checkpoint.h"

namespace milepost {

struct Finding {
  enum class Severity : uint8_t {
    kNote,     // worth knowing, nothing is wrong: a writer that takes no CRCs
    kWarning,  // loads, but somebody should look: a stale file, an object that is refused
    kError     // something cannot be loaded, or would be loaded wrong
  };
  Severity severity = Severity::kError;
  ErrorCode code = ErrorCode::kBadFormat;
  std::string path, key;  // file relative to the checkpoint, entry; empty when they do not apply
  int64_t offset = -1;    // byte in `path`; -1 when it does not apply
  std::string text;       // complete sentence for people, the fields included, control characters escaped
};
std::string_view severity_name(Finding::Severity severity);  // "note", "warning", "error"

struct VerifyOptions {
  OpenOptions open;      // rank: only what `__R.metadata` says; default: all ranks' where there are only such
  bool payloads = true;  // read every byte and check CRCs; false: indexes, headers and archives' directories
  int num_threads = 0;   // 0: default_num_threads()
  int64_t max_findings = 1000;  // kept in the report; all are counted
  Progress* progress = nullptr;
};

struct VerifyReport {
  std::string format;             // "dcp", "safetensors", "torch"
  std::vector<Finding> findings;  // errors, then warnings, then notes; in order of file and offset within
  int64_t num_errors = 0, num_warnings = 0, num_notes = 0;
  int64_t files = 0, tensors = 0, objects = 0, chunks = 0;
  int64_t bytes_checked = 0;  // bytes of data files that were read
  bool sound() const { return num_errors == 0; }
};

// Checks: the index is readable; every range lies inside its file; ranges of a file are disjoint; chunks
// cover their tensors exactly; dtype, shape and length of index and item agree; zip structure and CRCs are
// right (absent CRCs are a note); names are unique; no path leaves the folder; index.json and shards agree;
// files that nothing refers to are named (a warning, an error where they offer other values for the same
// names); objects decode (a refused global is a warning).
//
// Throws StorageError kNotFound when there is no checkpoint there, ValueError for a URI or rank that
// makes no sense and Error(kIo, "cancelled"); every other fault is a finding. Threads: runs a pool of its
// own; the report does not depend on its size. Memory: 1 MiB a thread, 40 bytes a chunk and the index. Cost:
// with `payloads`, one read of the checkpoint.
VerifyReport verify(std::string_view path_or_uri, const VerifyOptions& options = {});
VerifyReport verify(const StorageLocation& location, const VerifyOptions& options = {});

}  // namespace milepost
