// The parts of verify: what one format's check is given, and how findings are collected.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "milepost/base/bytes.h"
#include "milepost/base/thread_pool.h"
#include "milepost/engine/verify.h"
#include "milepost/format/zip.h"
#include "milepost/storage/storage.h"

namespace milepost {

// Where a finding lies.
struct Place {
  std::string_view path = {};  // relative to the checkpoint
  std::string_view key = {};
  int64_t offset = -1;
};

// Findings of one task, in the order in which they were met. Threads: one.
class Findings {
 public:
  void add(Finding::Severity severity, ErrorCode code, const Place& place, std::string summary,
           std::string hint = {});
  void error(ErrorCode code, const Place& place, std::string summary, std::string hint = {}) {
    add(Finding::Severity::kError, code, place, std::move(summary), std::move(hint));
  }
  void warning(ErrorCode code, const Place& place, std::string summary, std::string hint = {}) {
    add(Finding::Severity::kWarning, code, place, std::move(summary), std::move(hint));
  }
  void note(ErrorCode code, const Place& place, std::string summary) {
    add(Finding::Severity::kNote, code, place, std::move(summary));
  }
  // What `thrown` says, at `place`: its own offset counts from the start of an archive at place.offset (if
  // any), its own key holds where place has none. A refused global is a warning.
  void add(const Error& thrown, const Place& place);

  void append(Findings&& other);
  bool has_errors() const;
  std::vector<Finding>& list() { return list_; }

 private:
  std::vector<Finding> list_;
};

// What the check of a format works on.
struct VerifyJob {
  const VerifyOptions& options;
  StorageLocation location;
  std::string folder;  // that holds the files: the location itself, or its parent for a single file
  std::vector<FileInfo> listing;  // of a folder
  ThreadPool& pool;
  VerifyReport& report;
  Findings& findings;

  std::unique_ptr<ByteSource> open(std::string_view name) const {
    return location.storage->open_read(join_path(folder, name));
  }
  // nullptr when it cannot be opened, which is added to `failures`.
  std::shared_ptr<const Checkpoint> open_checkpoint(int64_t rank, Findings& failures) const;
  void count_entries(const Catalog& catalog);
  void check_coverage(const Catalog& catalog, std::string_view index_name);
};

// Whose metadata a folder holds: {-1} for `.metadata`, else the ranks of all `__R.metadata`.
std::vector<int64_t> metadata_ranks(const std::vector<FileInfo>& listing);

void verify_dcp(VerifyJob& job);
void verify_safetensors_folder(VerifyJob& job);
void verify_safetensors_file(VerifyJob& job, const std::string& name);
void verify_torch_file(VerifyJob& job, const std::string& name);

// What has been seen of records' checksums.
struct CrcTally {
  int64_t records = 0, without_crc = 0;
};

inline constexpr int64_t kVerifyBlockBytes = int64_t{1} << 20;

// Checks the local header of `record` and, with `payloads`, its bytes against its CRC. `archive` starts at
// place.offset of its file. `block`: memory for reading, of any size from 4 KiB on.
void check_record(const ByteSource& archive, zip::Record& record, bool payloads, MutableBytes block,
                  const Place& place, Findings& findings, CrcTally* tally);
// The note about records without CRC, if there are any.
void note_missing_crcs(const CrcTally& tally, std::string_view path, Findings& findings);

}  // namespace milepost
