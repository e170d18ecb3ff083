// Shapes: B sequences, L positions, D model dimension, G key heads, R query heads a key head, H = G R query
// heads, K dimension of a head.
#include "train/models/llama3/model.h"

#include <cmath>

namespace milepost::train {

GroupedQueryAttention::GroupedQueryAttention(const std::string& name, const flavor::Llama3& dims,
                                             int64_t layer)
    : wqkv(name + ".qkv_linear.wqkv", dims.dim, (dims.n_heads + 2 * dims.n_kv_heads) * dims.head_dim,
           projection_init()),
      wo(name + ".wo", dims.n_heads * dims.head_dim, dims.dim, depth_init(layer)),
      num_kv_heads(dims.n_kv_heads),
      queries_a_head(dims.n_heads / dims.n_kv_heads),
      head_dim(dims.head_dim) {
  const int64_t query_rows = queries_a_head * head_dim, period = query_rows + 2 * head_dim;
  const std::string parts = name + ".qkv_linear.";
  wqkv.weight.parts = {{parts + "wq.weight", period, 0, query_rows},
                       {parts + "wk.weight", period, query_rows, head_dim},
                       {parts + "wv.weight", period, query_rows + head_dim, head_dim}};
}

at::Tensor GroupedQueryAttention::operator()(const at::Tensor& x_BLD, const at::Tensor& positions_BL,
                                             const RopeTable& rope,
                                             const std::shared_ptr<const DocumentBorders>& borders) const {
  const at::Tensor qkv_BLGSK = wqkv(x_BLD).unflatten(-1, {num_kv_heads, queries_a_head + 2, head_dim});
  const auto parts = qkv_BLGSK.split_with_sizes({queries_a_head, 1, 1}, 3);
  const at::Tensor q_BLHK = apply_rope(parts[0].flatten(2, 3), rope, positions_BL);
  const at::Tensor k_BLGK = apply_rope(parts[1].squeeze(3), rope, positions_BL);
  const double scale = 1 / std::sqrt(static_cast<double>(head_dim));
  return wo(attention(q_BLHK, k_BLGK, parts[2].squeeze(3), borders, scale).flatten(2));
}

Llama3Model::Layer::Layer(const std::string& name, const flavor::Llama3& dims, int64_t layer)
    : attention(name + ".attention", dims, layer),
      feed_forward(name + ".feed_forward", dims.dim, dims.hidden_dim, depth_init(layer)),
      attention_norm(name + ".attention_norm", dims.dim, dims.norm_eps),
      ffn_norm(name + ".ffn_norm", dims.dim, dims.norm_eps) {}

Llama3Model::Llama3Model(const flavor::Llama3& dims, const ModelOptions& options)
    : Decoder(
          {dims.vocab_size, dims.dim, dims.norm_eps, dims.tied_embeddings, dims.head_dim, options.seq_len},
          dims.rope) {
  for (int64_t i = 0; i < dims.n_layers; ++i) {
    const std::string name = "layers." + std::to_string(i);
    Layer& layer = *layers_.emplace_back(std::make_unique<Layer>(name, dims, i));
    layer.block.is_layer = true;
    add_block(layer.block, name,
              {&layer.attention.wqkv.weight, &layer.attention.wo.weight, &layer.feed_forward.w1.weight,
               &layer.feed_forward.w2.weight, &layer.feed_forward.w3.weight, &layer.attention_norm.weight,
               &layer.ffn_norm.weight});
  }
  add_output();
}

std::vector<at::Tensor> Llama3Model::hidden(const Batch& batch, Execution& execution, bool) {
  const RopeTable& rope = rope_table(batch.positions_BL);
  const auto borders = document_borders(batch.positions_BL);
  at::Tensor x_BLD = embed(batch.tokens_BL, execution);
  for (const auto& layer : layers_) {
    const auto forward = [&rope, positions_BL = batch.positions_BL, borders,
                          &layer = *layer](const std::vector<at::Tensor>& inputs) {
      const at::Tensor& in = inputs[0];
      const at::Tensor h_BLD = in + layer.attention(layer.attention_norm(in), positions_BL, rope, borders);
      return std::vector<at::Tensor>{h_BLD + layer.feed_forward(layer.ffn_norm(h_BLD))};
    };
    x_BLD = execution.run(layer->block, {x_BLD}, forward)[0];
    show("hidden." + layer->block.name, x_BLD);
  }
  return {final_norm(x_BLD, execution)};
}

}  // namespace milepost::train
