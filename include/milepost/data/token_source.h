// TokenSource: the token ids of a data set's documents, by number: encoded on the way, from a cache on disk,
// or mixed from several data sets.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "milepost/data/documents.h"
#include "milepost/text/tokenizer.h"

namespace milepost::data {

// How documents become ids. A plain record of functions, so that tests need no tokenizer's files.
struct DocumentEncoder {
  std::string fingerprint;
  int64_t vocab_size = 0;
  // Appends the ids of a document, begin and end tokens included. Throws FormatError for text that is not
  // UTF-8.
  std::function<void(std::string_view text, std::vector<int32_t>* ids)> encode;
};

// With the begin and end tokens that the tokenizer has, as TorchTitan encodes documents. Copies share one
// Encoder: one thread at a time.
DocumentEncoder document_encoder(std::shared_ptr<const text::Tokenizer> tokenizer);

enum class OnBadRecord : uint8_t {
  kFail,  // throw
  kSkip,  // count it, and read it as a document without tokens
};

// Threads: one.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  virtual int64_t size() const = 0;
  // Of each file, where the documents come from files in this order; else empty.
  virtual std::vector<int64_t> file_documents() const { return {}; }
  // Requires 0 <= document < size(). Throws what Documents::read and the encoder throw.
  virtual void append(int64_t document, std::vector<int32_t>* ids) = 0;
  // How many ids append() would give, where that is known without reading them.
  virtual std::optional<int64_t> count(int64_t /*document*/) { return std::nullopt; }
  virtual std::string place(int64_t document) const = 0;  // for messages
  virtual const std::string& fingerprint() const = 0;     // of the data, without the tokenizer
  // Bad records passed over since the source was made; one read twice counts twice.
  virtual int64_t num_skipped() const = 0;
  // Messages of bad records passed over (the first ten) and of damage found in a cache, since the last call.
  virtual std::vector<std::string> take_warnings() { return {}; }
};

class EncodingSource final : public TokenSource {
 public:
  EncodingSource(std::unique_ptr<Documents> documents, DocumentEncoder encoder, OnBadRecord on_bad_record);

  int64_t size() const override { return documents_->size(); }
  std::vector<int64_t> file_documents() const override { return documents_->file_documents(); }
  void append(int64_t document, std::vector<int32_t>* ids) override;
  std::string place(int64_t document) const override { return documents_->place(document); }
  const std::string& fingerprint() const override { return documents_->fingerprint(); }
  int64_t num_skipped() const override { return num_skipped_; }
  std::vector<std::string> take_warnings() override;

  // Of the data as it lies on disk, the tokenizer and what is done with bad records.
  std::string cache_key() const;
  int64_t vocab_size() const { return encoder_.vocab_size; }

 private:
  std::unique_ptr<Documents> documents_;
  DocumentEncoder encoder_;
  OnBadRecord on_bad_record_;
  int64_t num_skipped_ = 0;
  std::vector<std::string> warnings_;
  std::string text_;
};

enum class StoppingStrategy : uint8_t { kOnFirstExhausted, kAllExhausted };

// Documents drawn from several sources by weight: number k comes from the source that
// `numpy.random.default_rng(seed)` chooses at its k-th draw, which gives its next document.
// kOnFirstExhausted: ends when a source has given all of its documents; kAllExhausted: sources that are
// through start over, until each has been through once. So it is a data set of known size, that is split and
// shuffled like any other. Memory: 8 bytes a document. Throws ValueError for weights that are not positive
// and finite, an empty source, and weights so uneven that there would be more than 64 times as many documents
// as the sources have.
class InterleavedSource final : public TokenSource {
 public:
  InterleavedSource(std::vector<std::unique_ptr<TokenSource>> sources, const std::vector<double>& weights,
                    uint64_t seed, StoppingStrategy strategy);

  int64_t size() const override { return static_cast<int64_t>(order_.size()); }
  void append(int64_t document, std::vector<int32_t>* ids) override;
  std::optional<int64_t> count(int64_t document) override;
  std::string place(int64_t document) const override;
  const std::string& fingerprint() const override { return fingerprint_; }
  int64_t num_skipped() const override;
  std::vector<std::string> take_warnings() override;

 private:
  struct Choice {
    uint64_t source : 8;
    uint64_t document : 56;
  };
  std::vector<std::unique_ptr<TokenSource>> sources_;
  std::vector<Choice> order_;
  std::string fingerprint_;
};

}  // namespace milepost::data
