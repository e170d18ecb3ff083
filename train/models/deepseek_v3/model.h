// DeepSeek-V3 (arXiv:2412.19437): latent attention, dense layers first and mixtures of experts after them,
// and layers that predict further tokens (multi-token prediction, section 2.2).
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "milepost/flavor/flavor.h"
#include "train/models/common/decoder.h"
#include "train/models/deepseek_v3/attention.h"
#include "train/models/deepseek_v3/moe.h"

namespace milepost::train {

class DeepSeekV3Model final : public Decoder {
 public:
  DeepSeekV3Model(const flavor::DeepSeekV3& dims, const config::ModelOptions& config,
                  const ModelOptions& options);
  std::vector<at::Tensor> hidden(const Batch& batch, Execution& execution, bool training) override;
  std::vector<ExpertLoad*> expert_loads() override;

 private:
  // What every layer of a pass needs.
  struct Pass;

  struct Layer {
    LatentAttention attention;
    RmsNorm attention_norm, ffn_norm;
    std::optional<FeedForward> feed_forward;  // one of the two
    std::optional<MixtureOfExperts> moe;
    ExpertLoad load;
    Block block;
    Layer(const std::string& name, bool is_dense, const flavor::DeepSeekV3& dims, int64_t layer,
          const config::ModelOptions& config, const ModelOptions& options);
  };
  // Depth k: a layer over the embedding of the k-th next token beside the hidden state of depth k - 1.
  struct PredictionLayer {
    Layer layer;
    RmsNorm enorm, hnorm, mtp_norm;
    Linear eh_proj;
    PredictionLayer(const std::string& name, const flavor::DeepSeekV3& dims,
                    const config::ModelOptions& config, const ModelOptions& options);
  };

  // The layer on x, then its expert counts and sequence-wise loss, where there are any.
  std::vector<at::Tensor> forward(const Layer& layer, const at::Tensor& x_BLD, const Pass& pass) const;
  void note_load(Layer& layer, const std::vector<at::Tensor>& results, const Pass& pass);
  at::Tensor predict(PredictionLayer& layer, int64_t depth, const at::Tensor& previous_BLD,
                     const Batch& batch, const Pass& pass);

  flavor::DeepSeekV3 dims_;
  double aux_loss_scale_ = 0;  // coefficient over the sequences of a step; 0: no such loss
  std::vector<std::unique_ptr<Layer>> layers_;
  std::vector<std::unique_ptr<PredictionLayer>> mtp_layers_;
};

}  // namespace milepost::train
