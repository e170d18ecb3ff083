// The kinds of files that documents come from, and the spool that unpacks those without random access.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "milepost/data/documents.h"
#include "milepost/storage/storage.h"

namespace milepost::data {

// JSON lines in `bytes`, which are `path`'s, unpacked where it is compressed. Reads all of them once.
std::unique_ptr<RecordFile> open_json_lines(std::shared_ptr<const ByteSource> bytes, std::string path,
                                            std::string text_field);

// A Parquet file of the operating system's file system; its texts go to a spool in `spool_folder`.
std::unique_ptr<RecordFile> open_parquet(const std::string& path, const std::string& text_field,
                                         const std::shared_ptr<Storage>& storage,
                                         const std::string& spool_folder);

// A file without a name: written once, then read.
class Spool {
 public:
  Spool(std::shared_ptr<Storage> storage, const std::string& folder);
  ~Spool();  // removes the file when finish() was not reached

  void append(std::string_view bytes);
  int64_t size() const { return size_; }
  std::shared_ptr<const ByteSource> finish();

 private:
  void flush();

  std::shared_ptr<Storage> storage_;
  std::string path_;
  std::unique_ptr<WritableFile> file_;
  std::string buffer_;
  int64_t size_ = 0, written_ = 0;
};

// All of a compressed file, whose members or frames may be several. Throw FormatError, path the source's
// name: kTruncated, kBadFormat.
std::shared_ptr<const ByteSource> unpack_gzip(const ByteSource& source, Spool& spool);
std::shared_ptr<const ByteSource> unpack_zstd(const ByteSource& source, Spool& spool);

}  // namespace milepost::data
