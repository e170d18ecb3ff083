// Llama 3 (arXiv:2407.21783): pre-norm layers of grouped-query attention and a gated feed-forward network.
#pragma once

#include <memory>
#include <vector>

#include "milepost/flavor/flavor.h"
#include "train/models/common/decoder.h"
#include "train/ops/attention.h"

namespace milepost::train {

// Query, key and value projections are one parameter, `qkv_linear.wqkv`: rows ordered by key head, then its
// query heads, its key and its value, then within the head. Checkpoints hold wq, wk and wv.
struct GroupedQueryAttention {
  Linear wqkv, wo;
  int64_t num_kv_heads, queries_a_head, head_dim;
  GroupedQueryAttention(const std::string& name, const flavor::Llama3& dims, int64_t layer);
  at::Tensor operator()(const at::Tensor& x_BLD, const at::Tensor& positions_BL, const RopeTable& rope,
                        const std::shared_ptr<const DocumentBorders>& borders) const;
};

class Llama3Model final : public Decoder {
 public:
  Llama3Model(const flavor::Llama3& dims, const ModelOptions& options);
  std::vector<at::Tensor> hidden(const Batch& batch, Execution& execution, bool training) override;

 private:
  struct Layer {
    GroupedQueryAttention attention;
    FeedForward feed_forward;
    RmsNorm attention_norm, ffn_norm;
    Block block;
    Layer(const std::string& name, const flavor::Llama3& dims, int64_t layer);
  };
  std::vector<std::unique_ptr<Layer>> layers_;
};

}  // namespace milepost::train
