// Documents: the texts of a data set's files, by number.
//
// Files: JSON lines (`.json`, `.jsonl`, `.ndjson`: one object a line, blank lines are not counted), the same
// compressed (`.gz`, `.zst`), and Parquet (`.parquet`). A folder stands for the files below it with these
// names, in order of their paths; hidden files and others are left out.
//
// Access is random, since shuffled epochs need that: a plain file is read where it lies. Compressed files and
// Parquet are unpacked once, when opened, into a spool: a file in `spool_folder` that is removed as soon as
// it is open, so the space is free again when the process ends (a process killed while unpacking leaves it).
// The Hugging Face loader, too, unpacks such a data set to disk before it gives random access.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "milepost/storage/storage.h"

namespace milepost::data {

struct DocumentOptions {
  std::string text_field = "text";  // of JSON objects and Parquet schemas; its values are strings
  std::string spool_folder;         // "": TMPDIR, or /tmp
};

// The data files at `path`, a file (any name that is not known counts as JSON lines) or folder. `prefix`:
// only those whose name starts with it, unless none does. Throws StorageError kNotFound when nothing is
// there, ValueError for a folder without data files.
std::vector<std::string> find_data_files(Storage& storage, const std::string& path,
                                         const std::string& prefix = {});

// Records of one file. `record_name` is what messages call one: "line 7", "row 7".
class RecordFile {
 public:
  virtual ~RecordFile() = default;
  virtual int64_t size() const = 0;
  virtual void read(int64_t record, std::string* text) = 0;
  virtual std::string record_name(int64_t record) const = 0;
};

// Threads: one, because reading keeps a window on the file. Memory: 8 bytes a document, a window of 256 KiB a
// file being read, the longest record.
class Documents {
 public:
  // Reads every file once, to find its records; contents of records are looked at by read(). Throws
  // FormatError: kTruncated for a compressed or Parquet file that is cut short, kBadFormat for one that is
  // damaged, kMissingKey or kBadFormat for a Parquet file without the field or with one that is no text,
  // kUnsupported for Parquet when the build has none. Files without any record are allowed.
  Documents(std::shared_ptr<Storage> storage, std::vector<std::string> files, DocumentOptions options);
  ~Documents();

  int64_t size() const { return first_of_file_.back(); }
  std::vector<int64_t> file_documents() const;

  // Throws FormatError, path the file's, text naming the line, when the record is not a JSON object in
  // UTF-8 (kBadFormat), lacks the field (kMissingKey), or holds no string there (kBadFormat). Other documents
  // can still be read.
  void read(int64_t document, std::string* text);
  std::string place(int64_t document) const;  // "data/a.json: line 7"

  // What the data is, wherever it lies: of sizes and first bytes of the files, their order, and the field.
  const std::string& fingerprint() const { return fingerprint_; }
  // As fingerprint(), and names and times of change, so that a changed file is noticed: for caches.
  const std::string& cache_key() const { return cache_key_; }

 private:
  struct Position {
    size_t file;
    int64_t record;
  };
  Position position(int64_t document) const;

  std::vector<std::string> paths_;
  std::vector<std::unique_ptr<RecordFile>> files_;
  std::vector<int64_t> first_of_file_{0};
  std::string fingerprint_, cache_key_;
};

}  // namespace milepost::data
