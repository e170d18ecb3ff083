#include "train/run/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "milepost/config/validate.h"
#include "train/models/model.h"
#include "train/models/sharding.h"
#include "train/optim/optimizer.h"
#include "train/run/estimate.h"
#include "train/run/log.h"
#include "train/run/metrics.h"
#include "train/run/model_log.h"
#include "train/run/run_checks.h"
#include "train/run/run_data.h"

namespace milepost::train {
namespace {

// "layers.12.attention.wo.weight" -> "layers.*.attention.wo.weight".
std::string without_numbers(const std::string& name) {
  std::string text;
  for (size_t i = 0; i < name.size(); ++i) {
    const bool is_digit = name[i] >= '0' && name[i] <= '9';
    const bool begins_part = i > 0 && name[i - 1] == '.';
    if (is_digit && begins_part) {
      text += '*';
      while (i + 1 < name.size() && name[i + 1] != '.') ++i;
    } else {
      text += name[i];
    }
  }
  return text;
}

std::string layout_text(const Parameter& parameter) {
  std::vector<std::string> cuts;
  for (size_t i = 0; i < parameter.placements.size(); ++i) {
    if (parameter.mesh.sizes[i] == 1 || parameter.placements[i].kind == Placement::Kind::kReplicate) continue;
    cuts.push_back(
        fmt::format("{} over {}", placement_text(parameter.placements[i]), parameter.mesh.names[i]));
  }
  return fmt::format("[{}]: {}, here [{}]", fmt::join(parameter.shape, ", "),
                     cuts.empty() ? "Replicate" : fmt::format("{}", fmt::join(cuts, ", ")),
                     fmt::join(local_box(parameter).sizes, ", "));
}

// A line for each kind of parameter, those of equal layers together.
std::vector<std::string> layout_lines(const Model& model) {
  std::vector<std::pair<std::string, int64_t>> lines;
  for (const Parameter* parameter : model.parameters()) {
    const std::string line = without_numbers(parameter->name) + " " + layout_text(*parameter);
    const auto found =
        std::find_if(lines.begin(), lines.end(), [&](const auto& known) { return known.first == line; });
    if (found == lines.end()) {
      lines.emplace_back(line, 1);
    } else {
      ++found->second;
    }
  }
  std::vector<std::string> texts;
  for (const auto& [line, count] : lines) {
    texts.push_back(count == 1 ? "  " + line : fmt::format("  {} ({} of them)", line, count));
  }
  return texts;
}

void show_memory(const MemoryEstimate& estimate, const DeviceMesh& mesh) {
  const Degrees& degrees = mesh.degrees();
  const int64_t world = degrees.world_size();
  if (world == 1) {
    log_info("Memory of the whole model in one process: " + memory_text(estimate));
  } else {
    log_info(fmt::format("Memory of rank {} of {}: {}", mesh.rank(), world, memory_text(estimate)));
  }
  if (degrees.pp > 1) {
    log_warning(fmt::format(
        "Parameters, gradients and moments are those of all stages of pp, about {} times one stage's; "
        "activations are one stage's",
        degrees.pp));
  }
  log_info(fmt::format("Size of a full checkpoint: {:.2f} GiB", gib(estimate.checkpoint_bytes)));
  if (world == 1) return;
  log_info(fmt::format("Files of a checkpoint: {} and .metadata, one a rank, {:.3f} GiB each on average",
                       world, gib(estimate.checkpoint_bytes) / static_cast<double>(world)));
}

}  // namespace

void show_plan(const config::Trainer& config, const DeviceMesh& mesh) {
  check_settings(config);
  config::validate_build(config);
  const config::Training& t = config.training;
  const int64_t data_world = mesh.size("batch");
  const int64_t accumulation = batches_per_step(t, data_world);
  log_info("Device mesh: " + mesh.text());
  log_info(fmt::format("Building {}", model_title(config.model)));
  const auto model = build_model(config.model, {.seq_len = t.seq_len});
  if (mesh.degrees().world_size() > 1) shard_parameters(*model, mesh);
  model->allocate(dtype_of(t.dtype.text()), at::kMeta);
  for (const std::string& line : override_lines(config.override.imports)) log_info(line);
  const ModelSize size = model_size(config.model, t.seq_len);
  for (const std::string& line : size_lines(config.model, size, Colors{})) log_info(line);
  if (mesh.degrees().world_size() > 1) {
    log_info(fmt::format("Parameters, and what rank {} holds of them:", mesh.rank()));
    for (const std::string& line : layout_lines(*model)) log_info(line);
  }
  Optimizer optimizer(model->parameters(), config.optimizer);
  for (const std::string& line : optimizer_lines(optimizer)) log_info(line);
  const int64_t tokens = t.local_batch_size * data_world * accumulation * t.seq_len;
  log_info(fmt::format("FLOPs per token: {} ({} with causal attention); tokens of a step: {}",
                       with_commas(size.flops_per_token),
                       with_commas(causal_flops_per_token(config.model, t.seq_len)), with_commas(tokens)));
  show_memory(estimate_memory(config, *model), mesh);
  log_info("Nothing was trained: the model was built on meta tensors only");
}

}  // namespace milepost::train
