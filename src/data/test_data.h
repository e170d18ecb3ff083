// What the tests of this layer read: documents in memory, and an encoder that needs no files.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "milepost/data/loader.h"

namespace milepost::data {

// Bytes as ids, between 256 and 257.
inline DocumentEncoder byte_encoder() {
  return {.fingerprint = "bytes",
          .vocab_size = 258,
          .encode = [](std::string_view text, std::vector<int32_t>* ids) {
            ids->push_back(256);
            for (char c : text) ids->push_back(static_cast<unsigned char>(c));
            ids->push_back(257);
          }};
}

class ListSource final : public TokenSource {
 public:
  explicit ListSource(std::vector<std::vector<int32_t>> documents, std::string fingerprint = "list")
      : documents_(std::move(documents)), fingerprint_(std::move(fingerprint)) {}

  int64_t size() const override { return static_cast<int64_t>(documents_.size()); }
  void append(int64_t document, std::vector<int32_t>* ids) override {
    const std::vector<int32_t>& from = documents_[static_cast<size_t>(document)];
    ids->insert(ids->end(), from.begin(), from.end());
  }
  std::string place(int64_t document) const override { return "document " + std::to_string(document); }
  const std::string& fingerprint() const override { return fingerprint_; }
  int64_t num_skipped() const override { return 0; }

 private:
  std::vector<std::vector<int32_t>> documents_;
  std::string fingerprint_;
};

// Document i consists of 1000 i, 1000 i + 1, ...: every token tells where it is from.
inline std::vector<std::vector<int32_t>> numbered_documents(const std::vector<int>& lengths) {
  std::vector<std::vector<int32_t>> documents;
  for (int length : lengths) {
    std::vector<int32_t> ids;
    for (int t = 0; t < length; ++t) ids.push_back(static_cast<int32_t>(documents.size()) * 1000 + t);
    documents.push_back(std::move(ids));
  }
  return documents;
}

// Between 0 and 40 tokens, without any pattern that a rank's block could follow.
inline std::vector<int> mixed_lengths(int count) {
  std::vector<int> lengths;
  for (int i = 0; i < count; ++i) lengths.push_back((i * i * 7 + i * 13 + 5) % 41);
  return lengths;
}

inline std::unique_ptr<Loader> list_loader(const std::vector<std::vector<int32_t>>& documents,
                                           const LoaderOptions& options) {
  return std::make_unique<Loader>(std::make_unique<ListSource>(documents), Split::kMapStyle, "list tokenizer",
                                  options);
}

inline void write_file(Storage& storage, const std::string& path, std::string_view content) {
  const std::unique_ptr<WritableFile> file =
      storage.open_write(path, {.expected_size_bytes = -1, .direct = false});
  const Bytes bytes = as_bytes(content);
  file->write_at(0, {&bytes, 1});
  file->close();
}

}  // namespace milepost::data
