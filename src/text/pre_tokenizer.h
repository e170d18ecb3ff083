// Pre-tokenizers: they split normalized text into the pieces that the model sees one by one.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/json_node.h"
#include "text/regex.h"

namespace milepost::text {

struct Piece {
  std::string_view text;  // not empty
  bool at_start;          // whether it begins where the input does
};

class PieceSink {
 public:
  virtual ~PieceSink() = default;
  virtual void take(const Piece& piece) = 0;
};

// One thread's memory for one pre-tokenizer. What a piece looks at stays valid until the next `split` with
// the same scratch.
struct SplitScratch {
  RegexScratch regex;
  std::string text;
  std::vector<MatchRange> ranges;
};

// Immutable; `split` may be called from any thread, each with a scratch of its own.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  // Hands the parts of `piece` to `sink`, in order.
  virtual void split(const Piece& piece, SplitScratch* scratch, PieceSink* sink) const = 0;
  // The same for the beginning of a text whose rest is not there yet: hands on what is certain, and returns
  // how many bytes that was; the others come again with more behind them, or to `split`. Only with
  // can_split_beginning().
  virtual size_t split_beginning(const Piece& piece, SplitScratch* scratch, PieceSink* sink) const;
  virtual bool can_split_beginning() const { return false; }
};

struct PreTokenizers {
  std::vector<std::unique_ptr<PreTokenizer>> stages;
  // The last one writes bytes in the alphabet of byte_characters(): left to Model::tokenize_bytes.
  bool maps_bytes = false;
};

// The pre-tokenizers of a tokenizer.json, sequences flattened, appended in the order in which they apply.
void read_pre_tokenizers(const JsonNode& node, PreTokenizers* result);

}  // namespace milepost::text
