// Shapes: B sequences, L positions, D model dimension, T = B L tokens.
#include "train/models/deepseek_v3/model.h"

#include <cmath>

#include "train/models/token_shift.h"

namespace milepost::train {
namespace {

void append(std::vector<Parameter*>* all, const std::vector<Parameter*>& more) {
  all->insert(all->end(), more.begin(), more.end());
}

Init linear_default_init(int64_t in) {
  const double bound = 1 / std::sqrt(static_cast<double>(in));
  return Init::uniform(-bound, bound);
}

bool is_dense(const flavor::DeepSeekV3& dims, int64_t layer) { return layer < dims.n_dense_layers; }

}  // namespace

struct DeepSeekV3Model::Pass {
  const RopeTable& rope;
  at::Tensor positions_BL;
  std::shared_ptr<const DocumentBorders> borders;
  Execution& execution;
  bool training;
};

DeepSeekV3Model::Layer::Layer(const std::string& name, bool dense, const flavor::DeepSeekV3& dims,
                              int64_t layer, const config::ModelOptions& config, const ModelOptions& options)
    : attention(name + ".attention", dims, layer),
      attention_norm(name + ".attention_norm", dims.dim, dims.norm_eps),
      ffn_norm(name + ".ffn_norm", dims.dim, dims.norm_eps) {
  if (dense) {
    feed_forward.emplace(name + ".feed_forward", dims.dim, dims.hidden_dim, depth_init(layer));
  } else {
    moe.emplace(name, dims, layer, config, options);
    load.block = name;
    load.bias_E = moe->expert_bias_E ? &*moe->expert_bias_E : nullptr;
    load.tokens_E = &moe->tokens_per_expert_E;
  }
}

DeepSeekV3Model::PredictionLayer::PredictionLayer(const std::string& name, const flavor::DeepSeekV3& dims,
                                                  const config::ModelOptions& config,
                                                  const ModelOptions& options)
    : layer(name, is_dense(dims, dims.n_layers - 1), dims, dims.n_layers - 1, config, options),
      enorm(name + ".enorm", dims.dim, dims.norm_eps),
      hnorm(name + ".hnorm", dims.dim, dims.norm_eps),
      mtp_norm(name + ".mtp_norm", dims.dim, dims.norm_eps),
      eh_proj(name + ".eh_proj", 2 * dims.dim, dims.dim, linear_default_init(2 * dims.dim)) {
  layer.load.is_balanced = false;
}

DeepSeekV3Model::DeepSeekV3Model(const flavor::DeepSeekV3& dims, const config::ModelOptions& config,
                                 const ModelOptions& options)
    : Decoder({dims.vocab_size, dims.dim, dims.norm_eps, dims.tied_embeddings, dims.qk_rope_head_dim,
               options.seq_len},
              dims.rope),
      dims_(dims),
      aux_loss_scale_(config.aux_loss_coeff.value_or(0) / static_cast<double>(options.global_batch_size)) {
  const auto add = [this](Layer& layer, const std::string& name, const std::vector<Parameter*>& own) {
    std::vector<Parameter*> all = layer.attention.parameters();
    append(&all, {&layer.attention_norm.weight, &layer.ffn_norm.weight});
    append(&all, own);
    append(&all, layer.moe ? layer.moe->parameters() : layer.feed_forward->parameters());
    layer.block.is_layer = true;
    add_block(layer.block, name, std::move(all));
  };
  for (int64_t i = 0; i < dims.n_layers; ++i) {
    const std::string name = "layers." + std::to_string(i);
    layers_.push_back(std::make_unique<Layer>(name, is_dense(dims, i), dims, i, config, options));
    add(*layers_.back(), name, {});
  }
  add_output();
  for (int64_t i = 0; i < dims.num_mtp_layers; ++i) {
    const std::string name = "mtp_layers." + std::to_string(i);
    PredictionLayer& mtp =
        *mtp_layers_.emplace_back(std::make_unique<PredictionLayer>(name, dims, config, options));
    add(mtp.layer, name, {&mtp.enorm.weight, &mtp.hnorm.weight, &mtp.eh_proj.weight, &mtp.mtp_norm.weight});
  }
}

std::vector<ExpertLoad*> DeepSeekV3Model::expert_loads() {
  std::vector<ExpertLoad*> loads;
  for (const auto& layer : layers_) {
    if (layer->moe) loads.push_back(&layer->load);
  }
  for (const auto& mtp : mtp_layers_) {
    if (mtp->layer.moe) loads.push_back(&mtp->layer.load);
  }
  return loads;
}

std::vector<at::Tensor> DeepSeekV3Model::forward(const Layer& layer, const at::Tensor& x_BLD,
                                                 const Pass& pass) const {
  const at::Tensor h_BLD =
      x_BLD + layer.attention(layer.attention_norm(x_BLD), pass.positions_BL, pass.rope, pass.borders);
  const at::Tensor normed_BLD = layer.ffn_norm(h_BLD);
  if (!layer.moe) return {h_BLD + (*layer.feed_forward)(normed_BLD)};
  const at::Tensor x_TD = normed_BLD.flatten(0, 1);
  const Routing routing = layer.moe->route(x_TD, h_BLD.size(0), pass.training ? aux_loss_scale_ : 0);
  const std::string seen = "router." + layer.load.block;
  show(seen + ".expert_ids", routing.ids_TK);
  show(seen + ".weights", routing.weights_TK);
  show(seen + ".scores", routing.scores_TE);
  return {h_BLD + (*layer.moe)(x_TD, routing).view_as(h_BLD), layer.moe->count(routing),
          at::scalar_tensor(routing.balance_loss, at::kDouble)};
}

void DeepSeekV3Model::note_load(Layer& layer, const std::vector<at::Tensor>& results, const Pass& pass) {
  show("hidden." + layer.block.name, results[0]);
  if (!layer.moe || !pass.training) return;
  const at::NoGradGuard no_grad;
  layer.load.tokens_E->local.add_(results[1]);
  layer.load.aux_loss += results[2].item<double>();
}

std::vector<at::Tensor> DeepSeekV3Model::hidden(const Batch& batch, Execution& execution, bool training) {
  const Pass pass = {rope_table(batch.positions_BL), batch.positions_BL, document_borders(batch.positions_BL),
                     execution, training};
  at::Tensor x_BLD = embed(batch.tokens_BL, execution);
  for (const auto& layer : layers_) {
    const auto run = [this, &layer = *layer, pass](const std::vector<at::Tensor>& inputs) {
      return forward(layer, inputs[0], pass);
    };
    const std::vector<at::Tensor> results = execution.run(layer->block, {x_BLD}, run);
    note_load(*layer, results, pass);
    x_BLD = results[0];
  }
  std::vector<at::Tensor> outputs = {final_norm(x_BLD, execution)};
  for (size_t i = 0; i < mtp_layers_.size(); ++i) {
    x_BLD = predict(*mtp_layers_[i], static_cast<int64_t>(i) + 1, x_BLD, batch, pass);
    outputs.push_back(x_BLD);
  }
  return outputs;
}

at::Tensor DeepSeekV3Model::predict(PredictionLayer& mtp, int64_t depth, const at::Tensor& previous_BLD,
                                    const Batch& batch, const Pass& pass) {
  const at::Tensor follows_BL = follows_by(batch.positions_BL, depth);
  const at::Tensor next_BLD = embed(shifted_by(batch.tokens_BL, follows_BL, depth, 0), pass.execution);
  const auto run = [this, &mtp, pass](const std::vector<at::Tensor>& inputs) {
    const at::Tensor known_BLD = inputs[1] * inputs[2].unsqueeze(-1).to(inputs[1].scalar_type());
    const at::Tensor both = at::cat({mtp.enorm(inputs[0]), mtp.hnorm(known_BLD)}, -1);
    std::vector<at::Tensor> results = forward(mtp.layer, mtp.eh_proj(both), pass);
    results[0] = mtp.mtp_norm(results[0]);
    return results;
  };
  const std::vector<at::Tensor> results =
      pass.execution.run(mtp.layer.block, {next_BLD, previous_BLD, follows_BL}, run);
  note_load(mtp.layer, results, pass);
  return results[0];
}

}  // namespace milepost::train
