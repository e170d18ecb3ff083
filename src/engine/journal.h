// Journal: which blocks of a conversion's output have been written, so that an interrupted one can be
// continued. It lies beside the data in the staging folder and is never published.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "milepost/base/checksum.h"
#include "milepost/storage/storage.h"

namespace milepost {

// What is converted, and how: equal identities give equal output bytes.
struct ConversionIdentity {
  Sha256Digest source{};  // names, sizes and times of the source's files
  Sha256Digest plan{};    // all that decides what comes out of them
};

// A record promises nothing: whoever continues reads the block back and compares its CRC. So records need no
// sync, and power cuts, lost pages and changed files are all one case.
//
// Threads: add, add_kept, forget and flush may be called by any at once, recorded_crc and has_records too;
// the others only before these. Ownership: looks at the storage. Memory: 4.125 bytes a block when continuing.
class Journal {
 public:
  static constexpr int64_t kMinBlockBytes = 1 << 20, kMaxBlockBytes = 8 << 20;

  struct Policy {
    // Records are written out when they stand for so many bytes, or this long after the last time. A
    // conversion that is over before that makes no file.
    int64_t flush_bytes = 64 << 20;
    std::chrono::milliseconds flush_time{1000};
    int64_t keep_bytes = 256 << 20;  // less than this is not worth keeping after a failure
  };

  Journal(Storage& storage, std::string path, const ConversionIdentity& identity, const Policy& policy);

  // Reads what an interrupted conversion left for output files of these sizes. Anything but kRecords: starts
  // afresh. Damaged records, and those of blocks that there cannot be, are passed over; a file that cannot be
  // read or is no journal is kNothing. Never throws an Error.
  enum class Found { kNothing, kOtherSource, kOtherPlan, kRecords };
  Found read(const std::vector<int64_t>& file_sizes);

  int64_t block_bytes() const { return block_bytes_; }  // 0: not set yet, and none was read
  void set_block_bytes(int64_t block_bytes);            // before the first add

  bool has_records(size_t file) const { return file < records_.size() && !records_[file].known.empty(); }
  std::optional<uint32_t> recorded_crc(size_t file, int64_t block) const;

  // A block of `length` bytes is written. Throws StorageError when the records cannot be.
  void add(size_t file, int64_t block, uint32_t crc, int64_t length);
  // A block was found as recorded.
  void add_kept(int64_t length);
  // All that is written of this file is in doubt: its sync failed. Never throws an Error.
  void forget(size_t file);
  void flush();  // throws StorageError

  int64_t bytes_kept() const;  // found as recorded
  // Whether enough is written that somebody would want to go on from it.
  bool is_worth_keeping() const;

 private:
  struct FileRecords {
    std::vector<uint32_t> crcs;
    std::vector<bool> known;  // by block; empty when there is no record
  };
  void append_record(uint32_t file, uint32_t block, uint32_t crc);
  void write_out();
  bool read_records(const ByteSource& file, const std::vector<int64_t>& file_sizes);
  void take_record(const std::byte* record, const std::vector<int64_t>& file_sizes);

  Storage& storage_;
  const std::string path_;
  const ConversionIdentity identity_;
  const Policy policy_;
  int64_t block_bytes_ = 0;
  uint32_t header_crc_ = 0;  // starts every record's check
  std::vector<FileRecords> records_;

  mutable std::mutex mutex_;
  std::unique_ptr<WritableFile> out_;                     // GUARDED_BY(mutex_), opened by the first write_out
  ByteVector buffer_;                                     // GUARDED_BY(mutex_)
  int64_t end_ = 0;                                       // GUARDED_BY(mutex_), of what is written out
  int64_t unflushed_bytes_ = 0;                           // GUARDED_BY(mutex_), of output
  int64_t bytes_added_ = 0, bytes_kept_ = 0;              // GUARDED_BY(mutex_)
  bool is_broken_ = false;                                // GUARDED_BY(mutex_): removed for good
  std::chrono::steady_clock::time_point last_write_out_;  // GUARDED_BY(mutex_)
};

}  // namespace milepost
