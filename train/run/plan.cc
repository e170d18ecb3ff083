#include "train/run/plan.h"

#include <fmt/format.h>

#include "milepost/config/validate.h"
#include "train/models/model.h"
#include "train/optim/optimizer.h"
#include "train/run/estimate.h"
#include "train/run/log.h"
#include "train/run/metrics.h"
#include "train/run/model_log.h"
#include "train/run/run_checks.h"
#include "train/run/run_data.h"

namespace milepost::train {

void show_plan(const config::Trainer& config, int64_t data_world) {
  check_settings(config);
  config::validate_build(config);
  const config::Training& t = config.training;
  const int64_t accumulation = batches_per_step(t, data_world);
  log_info(fmt::format("Building {}", model_title(config.model)));
  const auto model = build_model(config.model, {.seq_len = t.seq_len});
  model->allocate(dtype_of(t.dtype.text()), at::kMeta);
  for (const std::string& line : override_lines(config.override.imports)) log_info(line);
  const ModelSize size = model_size(config.model, t.seq_len);
  for (const std::string& line : size_lines(config.model, size, Colors{})) log_info(line);
  Optimizer optimizer(model->parameters(), config.optimizer);
  for (const std::string& line : optimizer_lines(optimizer)) log_info(line);
  const int64_t tokens = t.local_batch_size * data_world * accumulation * t.seq_len;
  log_info(fmt::format("FLOPs per token: {} ({} with causal attention); tokens of a step: {}",
                       with_commas(size.flops_per_token),
                       with_commas(causal_flops_per_token(config.model, t.seq_len)), with_commas(tokens)));
  const MemoryEstimate estimate = estimate_memory(config, *model);
  log_info("Memory of the whole model in one process: " + memory_text(estimate));
  log_info(fmt::format("Size of a full checkpoint: {:.2f} GiB", gib(estimate.checkpoint_bytes)));
  log_info("Nothing was trained: the model was built on meta tensors only");
}

}  // namespace milepost::train
