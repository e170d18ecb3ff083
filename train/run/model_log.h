// What the log says of a model and its optimizer, in TorchTitan's words.
#pragma once

#include <string>
#include <vector>

#include "milepost/config/trainer.h"
#include "train/models/model.h"
#include "train/optim/optimizer.h"
#include "train/run/metrics.h"

namespace milepost::train {

// "deepseek_v3 debugmodel".
std::string model_title(const config::Model& model);
// Two lines for mixtures of experts, one for others.
std::vector<std::string> size_lines(const config::Model& model, const ModelSize& size, const Colors& colors);
// A line for each group of parameters.
std::vector<std::string> optimizer_lines(Optimizer& optimizer);
// A line for each target of override.imports: that the fused form is what runs.
std::vector<std::string> override_lines(const config::OverrideImports& imports);
// "lr/AdamW" of one group, "lr/AdamW/0" of several, with the rates in use.
std::vector<std::pair<std::string, double>> learning_rates(Optimizer& optimizer);
// Dtype of a name of the configuration.
at::ScalarType dtype_of(std::string_view name);

}  // namespace milepost::train
