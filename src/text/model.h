// Model: from a piece of text, as the pre-tokenizers leave it, to ids.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/id_map.h"
#include "text/json_node.h"

namespace milepost::text {

// What one thread needs while it tokenizes; kept for its memory only.
struct Symbol {
  int32_t id;
  int32_t previous, next;  // places in the piece, -1 at its ends
  bool gone;               // merged into the one before
};
struct Candidate {
  uint32_t rank;
  int32_t place;
  int32_t id;
};
struct ModelScratch {
  std::string text;
  std::vector<Symbol> symbols;
  std::vector<Candidate> heap;
};

// Immutable. Errors: FormatError, key set, for a piece with a character that the vocabulary lacks when its
// unknown token is not there either.
class Model {
 public:
  explicit Model(TokenIds vocab);
  virtual ~Model() = default;

  const TokenIds& vocab() const { return vocab_; }
  std::optional<int32_t> id_of(std::string_view token) const;
  const std::string* token_of(int32_t id) const;
  int32_t largest_id() const { return largest_id_; }

  // Appends the ids of `piece`, which is not empty.
  virtual void tokenize(std::string_view piece, ModelScratch* scratch, std::vector<int32_t>* ids) const = 0;
  // The same for a piece whose bytes have yet to be written in the alphabet of byte_characters().
  virtual void tokenize_bytes(std::string_view bytes, ModelScratch* scratch, std::vector<int32_t>* ids) const;

 private:
  TokenIds vocab_;
  std::unordered_map<int32_t, const std::string*> tokens_;
  int32_t largest_id_ = -1;
};

// An object of tokens and ids.
TokenIds read_vocab(const JsonNode& node);

std::unique_ptr<Model> read_bpe(const JsonNode& node);
std::unique_ptr<Model> read_word_level(const JsonNode& node);

}  // namespace milepost::text
