#include "train/run/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "milepost/base/error.h"
#include "milepost/config/bundled.h"
#include "milepost/manager/policy.h"
#include "milepost/manager/steps.h"
#include "milepost/text/tokenizer.h"
#include "train/models/model.h"
#include "train/run/log.h"
#include "train/run/run_data.h"
#include "train/run/torch_error.h"
#include "train/state/job_load.h"

namespace milepost::train {
namespace {

void check_options(const config::Generation& options) {
  if (options.max_new_tokens < 1) throw ValueError("generation.max_new_tokens must be at least 1");
  if (!(options.temperature >= 0)) throw ValueError("generation.temperature cannot be negative");
}

std::string folder_of_weights(const config::Trainer& config) {
  const std::string& initial = config.checkpoint.initial_load_path.value_or("");
  if (!initial.empty()) return initial;
  const StorageLocation own = resolve_location(manager::checkpoint_folder(config));
  if (const auto newest = manager::survey_steps(own, {}).newest) {
    return manager::step_path(own.path, newest->number);
  }
  const std::string assets = config::find_bundled(config.hf_assets_path);
  try {
    if (Checkpoint::open(assets)->format() == CheckpointFormat::kSafetensors) return assets;
  } catch (const Error&) {  // no weights there: said below
  }
  throw ValueError(
      fmt::format("there are no weights to generate with: neither {} nor {} holds any", own.path, assets),
      "name a checkpoint with --checkpoint.initial-load-path");
}

void load_weights(const config::Trainer& config, Model& model) {
  const std::string folder = folder_of_weights(config);
  Job job;
  job.model = &model;
  log_info(fmt::format("Loading the checkpoint from {}.", folder));
  for (const manager::Message& message :
       load_model(Checkpoint::open(folder), config.model.architecture, std::nullopt, job)) {
    message.is_warning ? log_warning(message.text) : log_info(message.text);
  }
}

std::vector<int32_t> encode(const std::shared_ptr<const text::Tokenizer>& tokenizer,
                            const std::string& prompt) {
  std::vector<int32_t> ids;
  text::Encoder(tokenizer).encode(prompt, /*add_bos=*/true, /*add_eos=*/false, &ids);
  if (tokenizer->adds_eos() && !ids.empty() && ids.back() == tokenizer->eos_id()) ids.pop_back();
  if (ids.empty())
    throw ValueError("the prompt is empty, and the tokenizer has no token to begin a text with");
  return ids;
}

// That the model has the prompt's tokens and places for all that is to come.
void check_fits(const std::vector<int32_t>& ids, const config::Trainer& config) {
  const auto [vocab_size, places] = std::visit(
      [](const auto& dims) { return std::pair<int64_t, int64_t>(dims.vocab_size, dims.rope.max_seq_len); },
      config.model.architecture.dims);
  const auto largest = *std::max_element(ids.begin(), ids.end());
  if (largest >= vocab_size) {
    throw ValueError(fmt::format("the tokenizer gives id {}, but the model's vocabulary has {} tokens",
                                 largest, vocab_size),
                     "give the model's own tokenizer as --hf-assets-path");
  }
  if (config.generation.max_new_tokens <= places - std::ssize(ids)) return;
  throw ValueError(fmt::format("{} tokens of prompt and {} new ones do not fit into the model's {} positions",
                               ids.size(), config.generation.max_new_tokens, places),
                   "shorten the prompt, or lower --generation.max-new-tokens");
}

// Logits [V] of the token that follows `ids`.
at::Tensor next_logits(const std::vector<int32_t>& ids, Model& model, Execution& execution) {
  const auto length = static_cast<int64_t>(ids.size());
  milepost::train::Batch batch;
  batch.tokens_BL = at::empty({1, length}, at::kLong);
  std::copy(ids.begin(), ids.end(), batch.tokens_BL.mutable_data_ptr<int64_t>());
  batch.positions_BL = at::arange(length, at::kLong).unsqueeze(0);
  batch.labels_BL = at::full({1, length}, -100, at::kLong);
  const at::Tensor last_D = model.hidden(batch, execution, /*training=*/false)[0].select(1, length - 1);
  const auto head = [&](const std::vector<at::Tensor>& inputs) {
    return std::vector<at::Tensor>{model.logits(inputs[0])};
  };
  return model.run_head(execution, {last_D}, head)[0].reshape({-1}).to(at::kFloat);
}

int32_t choose(const at::Tensor& logits_V, double temperature) {
  if (temperature == 0) return static_cast<int32_t>(logits_V.argmax().item<int64_t>());
  // In double and from the largest down, so that no temperature overflows into NaN.
  const at::Tensor logits_in_double_V = logits_V.to(at::kDouble);
  const at::Tensor weights_V = ((logits_in_double_V - logits_in_double_V.max()) / temperature).softmax(0);
  return static_cast<int32_t>(weights_V.multinomial(1).item<int64_t>());
}

}  // namespace

std::string generate(const config::Trainer& config, const std::string& prompt) try {
  const config::Generation& options = config.generation;
  check_options(options);
  const auto tokenizer = text::Tokenizer::load(config::find_bundled(config.hf_assets_path));
  std::vector<int32_t> ids = encode(tokenizer, prompt);
  check_fits(ids, config);
  const at::NoGradGuard no_grad;
  const size_t prompt_size = ids.size();
  const auto model = build_model(config.model, {.seq_len = std::ssize(ids) + options.max_new_tokens});
  const bool is_bf16 = config.training.mixed_precision_param == "bfloat16";
  const auto execution = make_local_execution(is_bf16 ? at::kBFloat16 : at::kFloat, config::NoAc{});
  model->allocate(at::kFloat, at::kCPU);
  load_weights(config, *model);
  if (config.debug.seed) at::manual_seed(static_cast<uint64_t>(*config.debug.seed));
  for (int64_t i = 0; i < options.max_new_tokens; ++i) {
    const int32_t id = choose(next_logits(ids, *model, *execution), options.temperature);
    if (id == tokenizer->eos_id()) break;
    ids.push_back(id);
  }
  const std::span<const int32_t> new_ids = std::span(ids).subspan(prompt_size);
  return prompt + tokenizer->decode(new_ids, /*skip_special=*/true);
} catch (const c10::Error& error) {
  throw_readable(error);
}

}  // namespace milepost::train
