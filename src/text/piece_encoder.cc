#include "text/piece_encoder.h"

namespace milepost::text {

PieceEncoder::PieceEncoder(const Pipeline& pipeline) : pipeline_(pipeline) {
  const size_t num_stages = pipeline.pre_tokenizers.stages.size();
  scratches_.resize(num_stages);
  for (size_t i = 0; i <= num_stages; ++i) sinks_.emplace_back(this, i);
}

void PieceEncoder::take(size_t stage, const Piece& piece) {
  const auto& stages = pipeline_.pre_tokenizers.stages;
  if (stage == stages.size()) {
    add_ids(piece.text);
  } else {
    stages[stage]->split(piece, &scratches_[stage], &sinks_[stage + 1]);
  }
}

void PieceEncoder::add_ids(std::string_view piece) {
  if (cache_.find(piece, ids_)) return;
  const size_t before = ids_->size();
  if (pipeline_.pre_tokenizers.maps_bytes) {
    pipeline_.model->tokenize_bytes(piece, &model_scratch_, ids_);
  } else {
    pipeline_.model->tokenize(piece, &model_scratch_, ids_);
  }
  cache_.insert(piece, ids_->data() + before, ids_->size() - before);
}

void PieceEncoder::encode_plain(std::string_view text, bool at_start, std::vector<int32_t>* ids) {
  ids_ = ids;
  if (!text.empty()) take(0, {text, at_start});
}

size_t PieceEncoder::encode_beginning(std::string_view text, bool at_start, std::vector<int32_t>* ids) {
  ids_ = ids;
  if (text.empty()) return 0;
  return pipeline_.pre_tokenizers.stages[0]->split_beginning({text, at_start}, &scratches_[0], &sinks_[1]);
}

void PieceEncoder::encode_normal(std::string_view text, bool at_start, std::vector<int32_t>* ids) {
  if (!pipeline_.added.any(true)) return encode_plain(text, at_start, ids);
  normal_parts_.clear();
  pipeline_.added.split(text, true, &normal_parts_);
  for (const AddedTokens::Part& part : normal_parts_) {
    if (part.id >= 0) {
      ids->push_back(part.id);
    } else {
      encode_plain(text.substr(part.begin, part.end - part.begin), at_start && part.begin == 0, ids);
    }
  }
}

void PieceEncoder::encode(std::string_view text, std::vector<int32_t>* ids) {
  parts_.clear();
  pipeline_.added.split(text, false, &parts_);
  for (const AddedTokens::Part& part : parts_) {
    if (part.id >= 0) {
      ids->push_back(part.id);
      continue;
    }
    const std::string_view gap = text.substr(part.begin, part.end - part.begin);
    if (pipeline_.normalizers.empty()) {
      encode_normal(gap, part.begin == 0, ids);
      continue;
    }
    normal_.text = gap;
    normal_.keeps_start = part.begin == 0;
    pipeline_.normalize(&normal_);
    encode_normal(normal_.text, normal_.keeps_start, ids);
  }
}

}  // namespace milepost::text
