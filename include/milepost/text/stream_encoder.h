// StreamEncoder: the ids of a text that comes in parts and may be longer than memory.
//
// The ids are those of the whole text, wherever the parts end: what could still depend on text to come is
// kept back. With most byte-level tokenizers that is little: they split by a regex that never looks back,
// without normalizers or with such that work on a line as on the whole. Others (Metaspace without a split,
// Prepend, Strip, tokens that take whitespace along, ...) see the text as one, and so does this class: it
// collects it.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "milepost/text/tokenizer.h"

namespace milepost::text {

// One text, one thread. After an exception it can only be destroyed.
class StreamEncoder {
 public:
  // bos and eos as for Encoder::encode.
  StreamEncoder(std::shared_ptr<const Tokenizer> tokenizer, bool add_bos, bool add_eos);
  ~StreamEncoder();
  StreamEncoder(StreamEncoder&&) noexcept;

  // Whether memory stays within a few times the longest text between two places where it can be cut; false:
  // it holds the whole text, and feed() appends nothing.
  bool is_bounded() const;

  // Appends the ids that are certain. `bytes` may end within a character. Throws FormatError kBadFormat, the
  // offset in the whole text set, for what is not UTF-8. Cost: that of Encoder::encode, as long as parts have
  // some kilobytes.
  void feed(std::string_view bytes, std::vector<int32_t>* ids);
  // Appends the others. Once, as the last call.
  void finish(std::vector<int32_t>* ids);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace milepost::text
