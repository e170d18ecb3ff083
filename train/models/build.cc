#include "train/models/deepseek_v3/model.h"
#include "train/models/llama3/model.h"
#include "train/models/model.h"

namespace milepost::train {
namespace {

std::unique_ptr<Model> build(const flavor::Llama3& dims, const config::ModelOptions&,
                             const ModelOptions& options) {
  return std::make_unique<Llama3Model>(dims, options);
}
std::unique_ptr<Model> build(const flavor::DeepSeekV3& dims, const config::ModelOptions& config,
                             const ModelOptions& options) {
  return std::make_unique<DeepSeekV3Model>(dims, config, options);
}

}  // namespace

std::unique_ptr<Model> build_model(const config::Model& config, const ModelOptions& options) {
  return std::visit([&](const auto& dims) { return build(dims, config.options, options); },
                    config.architecture.dims);
}

}  // namespace milepost::train
