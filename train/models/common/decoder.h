// What every decoder-only model here has around its layers: embedding, final norm and output layer.
#pragma once

#include <cstdint>

#include "train/models/common/modules.h"
#include "train/models/model.h"
#include "train/ops/rope.h"

namespace milepost::train {

struct DecoderDims {
  int64_t vocab_size = 0, dim = 0;
  double norm_eps = 0;
  bool tied_embeddings = false;
  int64_t rope_dim = 0, seq_len = 0;
};

class Decoder : public Model {
 public:
  const Block& head() const override { return head_block_; }
  at::Tensor logits(const at::Tensor& hidden) override;

 protected:
  // Throws ValueError when seq_len exceeds rope.max_seq_len.
  Decoder(const DecoderDims& dims, const flavor::Rope& rope);

  // Registration: the embedding is registered by the constructor; layers follow, then the end of the model.
  void add_block(Block& block, std::string name, std::vector<Parameter*> parameters);
  void add_output();

  at::Tensor embed(const at::Tensor& tokens_BL, Execution& execution) const;
  at::Tensor final_norm(const at::Tensor& x_BLD, Execution& execution) const;
  // The table on the device of `like`. Throws ValueError when there are more positions than it has.
  const RopeTable& rope_table(const at::Tensor& like_BL);
  void show(const std::string& name, const at::Tensor& value) const {
    if (observer_) observer_(name, value.detach());
  }

 private:
  Embedding tok_embeddings_;
  RmsNorm norm_;
  Linear lm_head_;
  bool tied_;
  Block embedding_block_, norm_block_, head_block_;
  RopeTable rope_;
};

}  // namespace milepost::train
