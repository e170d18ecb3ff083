#include "milepost/base/error.h"
#include "milepost/text/tokenizer.h"
#include "text/pipeline.h"
#include "text/utf8.h"
#include "text/word_cache.h"

namespace milepost::text {

struct Encoder::State {
  explicit State(std::shared_ptr<const Tokenizer> owner)
      : tokenizer(std::move(owner)), pipeline(tokenizer->pipeline()) {
    const size_t num_stages = pipeline.pre_tokenizers.stages.size();
    scratches.resize(num_stages);
    for (size_t i = 0; i <= num_stages; ++i) sinks.push_back({this, i});
  }

  // Where the pieces of one stage go: to the next, or to the model.
  struct Sink final : PieceSink {
    Sink(State* state_, size_t stage_) : state(state_), stage(stage_) {}
    void take(const Piece& piece) override {
      const auto& stages = state->pipeline.pre_tokenizers.stages;
      if (stage == stages.size()) {
        state->add_ids(piece.text);
      } else {
        stages[stage]->split(piece, &state->scratches[stage], &state->sinks[stage + 1]);
      }
    }
    State* state;
    size_t stage;
  };

  void add_ids(std::string_view piece) {
    if (cache.find(piece, ids)) return;
    const size_t before = ids->size();
    if (pipeline.pre_tokenizers.maps_bytes) {
      pipeline.model->tokenize_bytes(piece, &model_scratch, ids);
    } else {
      pipeline.model->tokenize(piece, &model_scratch, ids);
    }
    cache.insert(piece, ids->data() + before, ids->size() - before);
  }

  // `text`: what lies between added tokens; not empty.
  void encode_normal(std::string_view text, bool at_start) {
    normal_parts.clear();
    pipeline.added.split(text, true, &normal_parts);
    for (const AddedTokens::Part& part : normal_parts) {
      if (part.id >= 0) {
        ids->push_back(part.id);
      } else {
        sinks[0].take({text.substr(part.begin, part.end - part.begin), at_start && part.begin == 0});
      }
    }
  }

  void encode(std::string_view text) {
    parts.clear();
    pipeline.added.split(text, false, &parts);
    for (const AddedTokens::Part& part : parts) {
      if (part.id >= 0) {
        ids->push_back(part.id);
        continue;
      }
      const std::string_view gap = text.substr(part.begin, part.end - part.begin);
      if (pipeline.normalizers.empty()) {
        encode_normal(gap, part.begin == 0);
        continue;
      }
      normal.text = gap;
      normal.keeps_start = part.begin == 0;
      pipeline.normalize(&normal);
      if (!normal.text.empty()) encode_normal(normal.text, normal.keeps_start);
    }
  }

  const std::shared_ptr<const Tokenizer> tokenizer;
  const Pipeline& pipeline;
  std::vector<SplitScratch> scratches;  // of each stage
  std::vector<Sink> sinks;              // into each stage, and one into the model
  std::vector<AddedTokens::Part> parts, normal_parts;
  NormalText normal;
  ModelScratch model_scratch;
  WordCache cache;
  std::vector<int32_t>* ids = nullptr;  // of the call in progress
};

Encoder::Encoder(std::shared_ptr<const Tokenizer> tokenizer)
    : state_(std::make_unique<State>(std::move(tokenizer))) {}
Encoder::~Encoder() = default;
Encoder::Encoder(Encoder&&) noexcept = default;

void Encoder::encode(std::string_view text, bool add_bos, bool add_eos, std::vector<int32_t>* ids) {
  if (const size_t bad = find_invalid_utf8(text); bad != std::string_view::npos) {
    FormatError error(ErrorCode::kBadFormat, "the text is not UTF-8", "convert it");
    error.set_offset(static_cast<int64_t>(bad));
    throw error;
  }
  const Tokenizer& tokenizer = *state_->tokenizer;
  const Pipeline& pipeline = state_->pipeline;
  state_->ids = ids;
  if (add_bos && !tokenizer.adds_bos() && tokenizer.bos_id()) ids->push_back(*tokenizer.bos_id());
  ids->insert(ids->end(), pipeline.before.begin(), pipeline.before.end());
  if (!text.empty()) state_->encode(text);
  ids->insert(ids->end(), pipeline.after.begin(), pipeline.after.end());
  if (add_eos && !tokenizer.adds_eos() && tokenizer.eos_id()) ids->push_back(*tokenizer.eos_id());
}

}  // namespace milepost::text
