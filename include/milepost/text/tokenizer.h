// Tokenizer: text to token ids and back, from the files of a Hugging Face folder.
//
// `load` follows TorchTitan's rules (spec training, section 4): `tokenizer.json`; else `vocab.json` or
// `vocab.txt`, with `merges.txt` as byte-level BPE, without as words. `tokenizer_config.json` names the
// special tokens. Ids equal those of Hugging Face's `tokenizers` package.
//
// Threads: a Tokenizer is immutable, any number of threads may use it; each needs an Encoder of its own,
// which keeps caches. Errors: FormatError (path, key: the JSON pointer of what is wrong) for a damaged file;
// kUnsupported names a component that is not known. Text is untrusted: invalid UTF-8 is a FormatError with
// the offset.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace milepost::text {

struct Pipeline;  // private to the layer

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // `folder`: a directory with tokenizer files. Throws StorageError kNotFound ("Tokenizer path '...' does not
  // exist", or the files that are there when none is a tokenizer's).
  static std::shared_ptr<const Tokenizer> load(const std::string& folder);

  virtual int64_t vocab_size() const = 0;  // largest id + 1, added tokens included
  virtual std::optional<int32_t> bos_id() const = 0;
  virtual std::optional<int32_t> eos_id() const = 0;
  // What tokenizer_config.json says of add_bos_token and add_eos_token; false when it does not.
  virtual bool default_add_bos() const = 0;
  virtual bool default_add_eos() const = 0;
  // Whether the tokenizer's own post-processor puts bos or eos around every text.
  virtual bool adds_bos() const = 0;
  virtual bool adds_eos() const = 0;
  virtual std::optional<int32_t> id_of(std::string_view token) const = 0;
  virtual std::optional<std::string> token_of(int32_t id) const = 0;  // as the vocabulary spells it
  virtual const std::vector<std::string>& warnings() const = 0;
  // Identifies vocabulary, rules and special tokens: for caches of ids.
  virtual std::string fingerprint() const = 0;

  // Text of ids; unknown ids are skipped. `skip_special`: leave special tokens out.
  virtual std::string decode(std::span<const int32_t> ids, bool skip_special) const = 0;

  virtual const Pipeline& pipeline() const = 0;  // for the encoder
};

// One thread's means to encode. Memory: bounded caches (16 MiB) and a few times the longest text between two
// places where it can be cut.
class Encoder {
 public:
  explicit Encoder(std::shared_ptr<const Tokenizer> tokenizer);
  ~Encoder();
  Encoder(Encoder&&) noexcept;

  // Appends the ids of `text`. bos and eos are added at the ends when asked for, known, and not added by the
  // tokenizer's own post-processor already.
  void encode(std::string_view text, bool add_bos, bool add_eos, std::vector<int32_t>* ids);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace milepost::text
