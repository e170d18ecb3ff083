// Trains a small Llama 3 on random tokens, with a checkpoint manager whose options are set in code. Started
// again, it goes on from the latest checkpoint, to the bit as if it had never stopped.
//
//   train_and_resume FOLDER STEPS
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "milepost/base/error.h"
#include "milepost/config/registry.h"
#include "milepost/config/validate.h"
#include "train/models/loss.h"
#include "train/optim/optimizer.h"
#include "train/state/checkpointer.h"
#include "train/torch.h"

namespace {

using namespace milepost;

constexpr int64_t kVocabulary = 64, kRows = 2, kSeqLen = 16;

// A registry entry with other values: what --checkpoint.enable --checkpoint.interval 2 ... would make of it.
config::Trainer settings(const std::string& folder, int64_t steps) {
  config::Trainer trainer = config::make("llama3", "llama3_debugmodel");
  trainer.model.architecture = {"", flavor::Llama3{.dim = 32,
                                                   .n_layers = 2,
                                                   .n_heads = 4,
                                                   .n_kv_heads = 2,
                                                   .head_dim = 8,
                                                   .hidden_dim = 48,
                                                   .vocab_size = kVocabulary,
                                                   .rope = {.max_seq_len = kSeqLen}}};
  trainer.training.seq_len = kSeqLen;
  trainer.training.steps = steps;
  trainer.lr_scheduler.total_steps = 100;
  trainer.dump_folder = folder;
  trainer.checkpoint.enable = true;
  trainer.checkpoint.folder = "checkpoint";
  trainer.checkpoint.interval = 2;
  trainer.checkpoint.keep_latest_k = 5;
  trainer.checkpoint.async_mode = "disabled";
  trainer.checkpoint.last_save_model_only = false;
  config::validate(trainer, {});  // ValueError for what cannot stand together, as from the command line
  return trainer;
}

// Forward and backward on a batch of random tokens; the gradients are then the parameters'.
double learn(const config::Trainer& trainer, train::Model& model, train::Execution& execution) {
  const train::Batch batch = {at::randint(kVocabulary, {kRows, kSeqLen}, at::kLong),
                              at::randint(kVocabulary, {kRows, kSeqLen}, at::kLong),
                              at::arange(kSeqLen).expand({kRows, kSeqLen}).contiguous()};
  const auto hidden = model.hidden(batch, execution, /*training=*/true);
  const at::Tensor value =
      train::loss(trainer.loss, model, execution, hidden, batch, /*global_valid_tokens=*/kRows * kSeqLen);
  value.backward();
  execution.finish_backward();
  return value.item<double>();
}

void run(const config::Trainer& trainer) {
  at::manual_seed(1);
  const auto model = train::build_model(trainer.model, {.seq_len = kSeqLen});
  model->allocate(at::kFloat, at::kCPU);
  model->initialize();
  const auto execution = train::make_local_execution(at::kFloat, config::NoAc{});
  train::Optimizer optimizer(model->parameters(), trainer.optimizer);
  train::LrScheduler scheduler(train::LrSchedule(trainer.lr_scheduler, trainer.training.steps), optimizer);
  train::TrainState state;

  train::Job job;
  job.model = model.get();
  job.optimizer = &optimizer;
  job.scheduler = &scheduler;
  job.train = &state;
  const auto log = [](bool is_warning, std::string_view text) {
    std::printf("%s%.*s\n", is_warning ? "warning: " : "", static_cast<int>(text.size()), text.data());
  };
  train::Checkpointer checkpoints(trainer, job, log);
  checkpoints.load(trainer.checkpoint.load_step);  // -1: the latest, if there is one
  while (state.step < trainer.training.steps) {
    ++state.step;
    optimizer.zero_grad();
    const double loss = learn(trainer, *model, *execution);
    checkpoints.wait_for_staging();  // an asynchronous save may still read the parameters
    optimizer.step();
    scheduler.step();
    std::printf("step %lld loss %.6f\n", static_cast<long long>(state.step), loss);
    checkpoints.save(state.step, /*last_step=*/state.step == trainer.training.steps);
  }
  checkpoints.close();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: train_and_resume FOLDER STEPS\n");
    return 2;
  }
  try {
    run(settings(argv[1], std::atoll(argv[2])));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "train_and_resume: %s\n", error.what());
    return 1;
  }
  return 0;
}
