// One file of a token cache.
//
//   0   "MPTOKEN1"
//   8   u32 bytes an id (2 or 4), u32 CRC-32 of the ends, u32 CRC-32 of the ids, u32 0
//   24  key, 32 characters
//   56  i64 first document, i64 number of documents, i64 number of ids
//   80  u64 for each document: where its ids end, counted in ids; the highest bit is set for a bad record
//   ... ids
//
// Numbers are little-endian. The places are fixed by the number of documents, so ids can be written as they
// come and the head last.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "milepost/storage/storage.h"

namespace milepost::data {

struct TokenFileIdentity {
  std::string key;  // 32 characters
  int64_t first_document = 0, num_documents = 0;
  int id_bytes = 4;
};

class TokenFile {
 public:
  // Throws FormatError (kBadFormat, kTruncated, kChecksum) for what is not the file that `identity` says.
  // `check_ids`: read all ids and compare their checksum.
  TokenFile(std::unique_ptr<ByteSource> source, const TokenFileIdentity& identity, bool check_ids);

  // Appends the ids of a document of the file, counted from 0; false for a bad record, which has none.
  bool read(int64_t document, std::vector<int32_t>* ids);
  int64_t count(int64_t document) const;  // of its ids

 private:
  int64_t begin(int64_t document) const;
  void check_ids(uint32_t expected) const;

  std::unique_ptr<ByteSource> source_;
  int64_t ids_offset_ = 0, num_ids_ = 0;
  int id_bytes_;
  std::vector<uint64_t> ends_;
  std::vector<uint16_t> narrow_;  // a document's ids as they are stored
};

// A file in the making. Abandoned, with its bytes left at `path`, unless finish() is called.
class TokenFileWriter {
 public:
  TokenFileWriter(Storage& storage, const std::string& path, TokenFileIdentity identity);

  int64_t num_documents() const { return static_cast<int64_t>(ends_.size()); }
  bool is_full() const { return num_documents() == identity_.num_documents; }
  void add(std::span<const int32_t> ids, bool is_bad);  // requires ids that fit id_bytes
  void finish();                                        // requires is_full()

 private:
  void flush();

  TokenFileIdentity identity_;
  std::unique_ptr<WritableFile> file_;
  std::vector<uint64_t> ends_;
  ByteVector buffer_;
  int64_t offset_, num_ids_ = 0;
  uint32_t crc_ids_ = 0;
};

}  // namespace milepost::data
