// PieceEncoder: one thread's way from text to ids, below what bos, eos and parts of a stream are about.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "text/pipeline.h"
#include "text/word_cache.h"

namespace milepost::text {

// All calls append to `ids`. Requires valid UTF-8. Not copyable or movable: its sinks point at it.
class PieceEncoder {
 public:
  explicit PieceEncoder(const Pipeline& pipeline);
  PieceEncoder(const PieceEncoder&) = delete;
  PieceEncoder& operator=(const PieceEncoder&) = delete;

  // A whole text.
  void encode(std::string_view text, std::vector<int32_t>* ids);

  // What lies between two added tokens after normalizing, and may hold normalized added tokens.
  void encode_normal(std::string_view text, bool at_start, std::vector<int32_t>* ids);
  // What holds no added tokens any more.
  void encode_plain(std::string_view text, bool at_start, std::vector<int32_t>* ids);
  // The beginning of such a text: returns how many bytes are done, see PreTokenizer::split_beginning.
  size_t encode_beginning(std::string_view text, bool at_start, std::vector<int32_t>* ids);

 private:
  // Where the pieces of one stage go: to the next, or to the model.
  class Sink final : public PieceSink {
   public:
    Sink(PieceEncoder* encoder, size_t stage) : encoder_(encoder), stage_(stage) {}
    void take(const Piece& piece) override { encoder_->take(stage_, piece); }

   private:
    PieceEncoder* encoder_;
    size_t stage_;
  };

  void take(size_t stage, const Piece& piece);
  void add_ids(std::string_view piece);

  const Pipeline& pipeline_;
  std::vector<SplitScratch> scratches_;  // of each stage
  std::vector<Sink> sinks_;              // into each stage, and one into the model
  std::vector<AddedTokens::Part> parts_, normal_parts_;
  NormalText normal_;
  ModelScratch model_scratch_;
  WordCache cache_;
  std::vector<int32_t>* ids_ = nullptr;  // of the call in progress
};

}  // namespace milepost::text
