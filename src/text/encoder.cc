#include "milepost/base/error.h"
#include "milepost/text/tokenizer.h"
#include "text/piece_encoder.h"
#include "text/utf8.h"

namespace milepost::text {

struct Encoder::State {
  explicit State(std::shared_ptr<const Tokenizer> owner)
      : tokenizer(std::move(owner)), pieces(tokenizer->pipeline()) {}

  const std::shared_ptr<const Tokenizer> tokenizer;
  PieceEncoder pieces;
};

Encoder::Encoder(std::shared_ptr<const Tokenizer> tokenizer)
    : state_(std::make_unique<State>(std::move(tokenizer))) {}
Encoder::~Encoder() = default;
Encoder::Encoder(Encoder&&) noexcept = default;

void Encoder::encode(std::string_view text, bool add_bos, bool add_eos, std::vector<int32_t>* ids) {
  if (const size_t bad = find_invalid_utf8(text); bad != std::string_view::npos) {
    throw invalid_utf8(static_cast<int64_t>(bad));
  }
  const Tokenizer& tokenizer = *state_->tokenizer;
  const Pipeline& pipeline = tokenizer.pipeline();
  if (add_bos && !tokenizer.adds_bos() && tokenizer.bos_id()) ids->push_back(*tokenizer.bos_id());
  ids->insert(ids->end(), pipeline.before.begin(), pipeline.before.end());
  state_->pieces.encode(text, ids);
  ids->insert(ids->end(), pipeline.after.begin(), pipeline.after.end());
  if (add_eos && !tokenizer.adds_eos() && tokenizer.eos_id()) ids->push_back(*tokenizer.eos_id());
}

}  // namespace milepost::text
