#include "train/models/common/decoder.h"

#include <fmt/format.h>

#include "milepost/base/error.h"
#include "train/ops/linear.h"

namespace milepost::train {
namespace {

void check_length(int64_t length, int64_t limit) {
  if (length <= limit) return;
  throw ValueError(
      fmt::format("Training sequence length {} exceeds attention RoPE maximum supported sequence "
                  "length {}.",
                  length, limit));
}

int64_t checked_length(int64_t length, int64_t limit) {
  check_length(length, limit);
  return length;
}

}  // namespace

Decoder::Decoder(const DecoderDims& dims, const flavor::Rope& rope)
    : tok_embeddings_("tok_embeddings", dims.vocab_size, dims.dim,
                      dims.tied_embeddings ? output_init(dims.dim) : Init::normal(1)),
      norm_("norm", dims.dim, dims.norm_eps),
      lm_head_("lm_head", dims.dim, dims.vocab_size, output_init(dims.dim)),
      tied_(dims.tied_embeddings),
      rope_(make_rope_table(rope, dims.rope_dim, checked_length(dims.seq_len, rope.max_seq_len))) {
  if (tied_) tok_embeddings_.weight.tied_name = lm_head_.weight.name;
  add_block(embedding_block_, "tok_embeddings", {&tok_embeddings_.weight});
}

void Decoder::add_block(Block& block, std::string name, std::vector<Parameter*> parameters) {
  block.name = std::move(name);
  block.parameters = std::move(parameters);
  blocks_.push_back(&block);
  parameters_.insert(parameters_.end(), block.parameters.begin(), block.parameters.end());
}

void Decoder::add_output() {
  add_block(norm_block_, "norm", {&norm_.weight});
  if (tied_) {
    head_block_ = {"lm_head", {&tok_embeddings_.weight}, false};
    blocks_.push_back(&head_block_);
  } else {
    add_block(head_block_, "lm_head", {&lm_head_.weight});
  }
}

at::Tensor Decoder::logits(const at::Tensor& hidden) {
  return train::linear(hidden, tied_ ? tok_embeddings_.weight.compute : lm_head_.weight.compute);
}

at::Tensor Decoder::embed(const at::Tensor& tokens_BL, Execution& execution) const {
  const auto look_up = [this](const std::vector<at::Tensor>& inputs) {
    return std::vector<at::Tensor>{tok_embeddings_(inputs[0])};
  };
  return execution.run(embedding_block_, {tokens_BL}, look_up)[0];
}

at::Tensor Decoder::final_norm(const at::Tensor& x_BLD, Execution& execution) const {
  const auto normalize = [this](const std::vector<at::Tensor>& inputs) {
    return std::vector<at::Tensor>{norm_(inputs[0])};
  };
  return execution.run(norm_block_, {x_BLD}, normalize)[0];
}

const RopeTable& Decoder::rope_table(const at::Tensor& like_BL) {
  check_length(like_BL.size(1), rope_.length);
  if (rope_.cos.device() != like_BL.device()) {
    rope_.cos = rope_.cos.to(like_BL.device());
    rope_.sin = rope_.sin.to(like_BL.device());
  }
  return rope_;
}

}  // namespace milepost::train
