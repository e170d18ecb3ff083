// Names, shapes and starting values of all models (spec training, section 6; spec conversion, sections 2 and
// 3).
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "milepost/adapt/key_table.h"
#include "milepost/config/registry.h"
#include "train/models/bytes_in_use.h"
#include "train/models/loss.h"

namespace milepost::train {
namespace {

std::unique_ptr<Model> model_of(const flavor::Model& architecture) {
  config::Model config;
  config.architecture = architecture;
  return build_model(config, {.seq_len = 16});
}

std::string line(const std::string& name, const std::vector<int64_t>& shape) {
  return fmt::format("{} [{}]", name, fmt::join(shape, ", "));
}

// As a checkpoint's model lists them.
std::vector<std::string> saved_lines(const Model& model) {
  std::vector<std::string> lines, tied;
  for (const Parameter* parameter : model.parameters()) {
    if (!parameter->saved) continue;
    if (!parameter->tied_name.empty()) tied.push_back(line(parameter->tied_name, parameter->shape));
    if (parameter->parts.empty()) lines.push_back(line(parameter->name, parameter->shape));
    for (const SavedPart& part : parameter->parts) {
      std::vector<int64_t> shape = parameter->shape;
      shape[0] = shape[0] / part.period_rows * part.num_rows;
      lines.push_back(line(part.name, shape));
    }
  }
  lines.insert(lines.end(), tied.begin(), tied.end());
  return lines;
}

std::vector<std::string> table_lines(const flavor::Model& architecture) {
  std::vector<std::string> lines;
  for (const adapt::KeyEntry& entry : adapt::expand(adapt::key_table(architecture.model()), architecture)) {
    if (entry.native.empty()) continue;
    lines.push_back(line(entry.native, {entry.shape.begin(), entry.shape.end()}));
  }
  return lines;
}

// Where two lists differ first; empty: nowhere.
std::string difference(const std::vector<std::string>& ours, const std::vector<std::string>& wanted) {
  const auto [a, b] = std::mismatch(ours.begin(), ours.end(), wanted.begin(), wanted.end());
  if (a == ours.end() && b == wanted.end()) return "";
  return fmt::format("{} instead of {}", a == ours.end() ? "nothing" : *a,
                     b == wanted.end() ? "nothing" : *b);
}

TEST(Parameters, AreThoseOfTheKeyTables) {
  for (flavor::Model architecture : flavor::all()) {
    std::vector<std::string> ours = saved_lines(*model_of(architecture)), wanted = table_lines(architecture);
    EXPECT_EQ(difference(ours, wanted), "") << architecture.text();
    auto* deepseek = std::get_if<flavor::DeepSeekV3>(&architecture.dims);
    if (deepseek == nullptr) continue;
    deepseek->num_mtp_layers = 2;  // which the tables have in another place
    ours = saved_lines(*model_of(architecture));
    wanted = table_lines(architecture);
    std::sort(ours.begin(), ours.end());
    std::sort(wanted.begin(), wanted.end());
    EXPECT_EQ(difference(ours, wanted), "") << architecture.text();
  }
}

TEST(Parameters, OfTheLargestModelTakeNoMemoryOnMeta) {
  const auto model = model_of(config::make("deepseek_v3", "deepseek_v3_671b").model.architecture);
  const BytesInUse bytes;
  model->allocate(at::kFloat, at::kMeta);
  model->initialize();
  int64_t elements = 0;
  for (const Parameter* parameter : model->parameters()) {
    if (parameter->trainable) elements += parameter->local.numel();
  }
  EXPECT_EQ(elements, 671'026'404'352);
  EXPECT_EQ(bytes.peak(), 0);
}

// What the specification says of each kind of name; `depth`: of w2, w3, wo and the router in this layer.
struct Start {
  double mean, std, limit;
};
Start start_of(const std::string& name, int64_t dim, double depth) {
  const auto ends = [&name](const std::string& end) { return name.ends_with(end); };
  const double head = 1 / std::sqrt(static_cast<double>(dim));
  if (ends("expert_bias_E") || ends("tokens_per_expert_E")) return {0, 0, 0};
  if (ends("norm.weight")) return {1, 0, 1};
  if (name == "tok_embeddings.weight") return {0, 1, 7};
  if (name == "lm_head.weight") return {0, 0.98658 * head, 3 * head};  // cut at three deviations
  if (ends("eh_proj.weight")) {
    const double bound = 1 / std::sqrt(2.0 * static_cast<double>(dim));
    return {0, bound / std::sqrt(3.0), bound};
  }
  for (const char* deep : {"wo.weight", "w2.weight", "w3.weight", "gate.weight", "w2_EDF", "w3_EFD"}) {
    if (ends(deep)) return {0, depth, 2};
  }
  return {0, 0.02, 2};
}

int64_t depth_of(const std::string& name, int64_t n_layers) {
  if (name.starts_with("mtp_layers.")) return n_layers;
  return name.starts_with("layers.") ? std::stoll(name.substr(7)) + 1 : 0;
}

void expect_starts(const Model& model, int64_t dim, int64_t n_layers) {
  for (const Parameter* parameter : model.parameters()) {
    const auto depth = static_cast<double>(std::max<int64_t>(1, depth_of(parameter->name, n_layers)));
    const Start start = start_of(parameter->name, dim, 0.02 / std::sqrt(2 * depth));
    const at::Tensor values = parameter->local.detach().to(at::kDouble);
    const double error = start.std / std::sqrt(static_cast<double>(values.numel()));
    EXPECT_NEAR(values.mean().item<double>(), start.mean, 5 * error) << parameter->name;
    EXPECT_NEAR(values.std().item<double>(), start.std, 5 * error) << parameter->name;
    EXPECT_LE(values.abs().max().item<double>(), start.limit * (1 + 1e-6)) << parameter->name;
  }
}

// ln(vocabulary) for guesses without a preference, and half the variance of the logits.
void expect_first_loss(Model& model, const config::Loss& kind, int64_t vocab_size) {
  const auto execution = make_local_execution(at::kFloat, config::NoAc{});
  const auto draw = [vocab_size] { return at::randint(vocab_size, {8, 16}, at::kLong); };
  const Batch batch = {draw(), draw(), at::arange(16).expand({8, 16}).contiguous()};
  const at::NoGradGuard no_grad;
  const auto hidden = model.hidden(batch, *execution, false);
  const double value = loss(kind, model, *execution, {hidden[0]}, batch, 128).item<double>();
  EXPECT_NEAR(value, std::log(static_cast<double>(vocab_size)) + 0.487, 0.35);
}

TEST(Parameters, StartAsSpecified) {
  for (const auto& [module, entry] :
       {std::pair{"llama3", "llama3_debugmodel"}, {"deepseek_v3", "deepseek_v3_debugmodel_mtp"}}) {
    at::manual_seed(5);
    const config::Trainer trainer = config::make(module, entry);
    const auto model = build_model(trainer.model, {.seq_len = 16});
    model->allocate(at::kFloat, at::kCPU);
    model->initialize();
    std::visit(
        [&model](const auto& dims) {
          expect_starts(*model, dims.dim, dims.n_layers);
          expect_first_loss(*model, config::CrossEntropyLoss{}, dims.vocab_size);
        },
        trainer.model.architecture.dims);
  }
}

}  // namespace
}  // namespace milepost::train
