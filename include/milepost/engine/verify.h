// verify: everything that can be wrong with a checkpoint, in one report.
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
  enum class Severity : uint8_t { kNote, kWarning, kError } severity;
  ErrorCode code;
  std::string path, key;   // file relative to the checkpoint, entry; empty when they do not apply
  int64_t offset = -1;
  std::string text;        // complete sentence for people, fields included
};

struct VerifyOptions {
  OpenOptions open;
  bool payloads = true;        // read every byte and check CRCs; false: structure only
  int num_threads = 0;
  int64_t max_findings = 1000;
  Progress* progress = nullptr;
};

struct VerifyReport {
  std::vector<Finding> findings;  // errors, then warnings, then notes; in order of file and offset within
  int64_t num_errors = 0, num_warnings = 0;
  int64_t files = 0, tensors = 0, objects = 0, chunks = 0, bytes_checked = 0;
  bool sound() const { return num_errors == 0; }
};

// Checks: index readable; every range inside its file; ranges of a file disjoint; chunks cover their tensors exactly; dtype, shape and length of index and item agree; zip structure and CRCs (an absent CRC is a note);
// names unique; no path leaves the folder; index.json and shards agree; files that nothing refers to are named (warning); objects decode (a refused global is a warning). Throws only StorageError kNotFound
// when there is no checkpoint at `path`, and ValueError for a bad URI; every other fault is a finding.
VerifyReport verify(std::string_view path, const VerifyOptions& options = {});

}  // namespace milepost
