// Pipeline: what a tokenizer.json says, ready to use.
//
//   text -> added tokens cut out -> normalizers -> normalized added tokens cut out -> pre-tokenizers ->
//   model, and the post-processor's ids around it all. Decoding: spellings -> decoders.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "text/added_tokens.h"
#include "text/decoder.h"
#include "text/model.h"
#include "text/normalizer.h"
#include "text/pre_tokenizer.h"

namespace milepost::text {

// Immutable once made.
struct Pipeline {
  std::unique_ptr<Model> model;
  AddedTokens added;
  std::vector<std::unique_ptr<Normalizer>> normalizers;
  PreTokenizers pre_tokenizers;
  std::vector<int32_t> before, after;  // ids that the post-processor puts around every text
  std::vector<std::unique_ptr<Decoder>> decoders;

  std::optional<int32_t> id_of(std::string_view token) const;
  std::optional<std::string> token_of(int32_t id) const;
  void normalize(NormalText* text) const;
  std::string decode(std::span<const int32_t> ids, bool skip_special) const;

  // Adds tokens and makes them findable.
  void add_tokens(const std::vector<AddedToken>& tokens);
};

// Throws FormatError, the JSON pointer as its key; `warnings` gets what is odd but harmless.
std::unique_ptr<Pipeline> read_tokenizer_json(std::string_view json, std::vector<std::string>* warnings);

// Of the contents of `vocab.json` or `vocab.txt`, and `merges.txt`: with merges byte-level BPE as in GPT-2;
// else (nullptr) a text is one word, "[UNK]" when it is not in the vocabulary.
std::unique_ptr<Pipeline> read_vocab_files(std::string_view vocab, bool vocab_is_json,
                                           const std::string* merges);

}  // namespace milepost::text
