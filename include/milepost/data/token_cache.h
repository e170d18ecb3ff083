// TokenCache: the ids of a data set's documents on disk, so that a text is encoded once and not in every
// epoch and run.
//
// FOLDER/<key>/ holds one file for every 4096 documents. The key is of the data files' names, sizes, first
// bytes and times of change, the field, the tokenizer, and what is done with bad records: another of these
// makes another key, and old keys may be deleted at any time. A file is written as its documents are first
// read, in the order of their numbers, and published by a rename when it is whole. So the cache fills while
// training runs, several ranks and processes may share it, and what a killed process had finished is kept.
//
// A file's bytes are checked (CRC-32, size, key) when the process first uses it; one that is damaged is made
// again, with a warning.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "milepost/data/token_source.h"

namespace milepost::data {

class TokenFile;           // src/data/token_file.h
struct TokenFileIdentity;  // the same

// Threads: one. Disk: 2 bytes a token for vocabularies up to 65536, else 4, and 8 bytes a document. Memory:
// up to 64 open files with 8 bytes for each of their documents, and the file in the making. Cost of a
// document: one read. Durability: none is promised; what a power cut damages is seen and made again.
class TokenCache final : public TokenSource {
 public:
  static constexpr int64_t kFileDocuments = 4096;

  // Throws StorageError when the folder cannot be made.
  TokenCache(std::shared_ptr<Storage> storage, const std::string& folder,
             std::unique_ptr<EncodingSource> source);
  ~TokenCache() override;

  // Encodes whatever is missing.
  void build();

  int64_t size() const override { return source_->size(); }
  std::vector<int64_t> file_documents() const override { return source_->file_documents(); }
  // Throws also StorageError when the cache cannot be written.
  void append(int64_t document, std::vector<int32_t>* ids) override;
  std::optional<int64_t> count(int64_t document) override;
  std::string place(int64_t document) const override { return source_->place(document); }
  const std::string& fingerprint() const override { return source_->fingerprint(); }
  int64_t num_skipped() const override { return num_skipped_; }
  std::vector<std::string> take_warnings() override;

  const std::string& folder() const { return folder_; }  // FOLDER/<key>

 private:
  struct Draft;
  using Opened = std::list<std::pair<int64_t, std::unique_ptr<TokenFile>>>;

  int64_t num_files() const;
  std::string path(int64_t file) const;
  TokenFileIdentity identity(int64_t file) const;
  TokenFile* open(int64_t file);   // nullptr when it is not there, or was damaged
  bool start_draft(int64_t file);  // false when somebody else is making that file
  void check_ids() const;
  void extend_draft(int64_t count);  // to so many documents; the last one's ids are in ids_ then

  std::shared_ptr<Storage> storage_;
  std::unique_ptr<EncodingSource> source_;
  std::string key_, folder_;
  int id_bytes_;
  std::vector<bool> checked_;  // files whose bytes this process has looked at
  Opened opened_;              // last used first
  std::unordered_map<int64_t, Opened::iterator> where_;
  std::unique_ptr<Draft> draft_;
  std::vector<int32_t> ids_;
  bool last_is_bad_ = false;
  int64_t num_skipped_ = 0;
  std::vector<std::string> warnings_;
};

}  // namespace milepost::data
