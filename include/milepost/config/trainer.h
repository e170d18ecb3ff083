// The whole configuration of a training run: TorchTitan 0.3.0's Trainer.Config and what Milepost adds.
//
//   config::Trainer trainer = config::make("deepseek_v3", "deepseek_v3_debugmodel");  // registry.h
//   trainer.training.steps = 200;
//   trainer.checkpoint.enable = true;
//   config::validate(trainer, {});  // validate.h
//
// docs/configuration.md lists every field; it is made from these declarations. Plain values, as in
// sections.h.
#pragma once

#include "milepost/config/checkpoint.h"
#include "milepost/config/dataloader.h"
#include "milepost/config/model.h"
#include "milepost/config/sections.h"

namespace milepost::config {

// clang-format off
MILEPOST_CONFIG(Trainer, "",
  (std::string, hf_assets_path, "./tests/assets/tokenizer", "Folder with the tokenizer and, for some uses, Hugging Face weights.")
  (std::string, dump_folder, "./outputs", "Folder of everything that a run writes.")
  (std::string, device, "auto", "Where to compute: cpu, cuda or cuda:N; auto: cuda where this libtorch has it and there is such a device, else cpu.", kOurs)
  (Model, model, {}, "")
  (Profiler, profiler, {}, "")
  (Metrics, metrics, {}, "")
  (Tokenizer, tokenizer, {}, "")
  (Dataloader, dataloader, {}, "")
  (Optimizer, optimizer, {}, "")
  (LrScheduler, lr_scheduler, {}, "")
  (Training, training, {}, "")
  (Parallelism, parallelism, {}, "")
  (Checkpoint, checkpoint, {}, "")
  (EmaWeights, ema_weights, {}, "", kOurs)
  (ActivationCheckpoint, activation_checkpoint, {}, "")
  (Compile, compile, {}, "")
  (Comm, comm, {}, "")
  (Validator, validator, {}, "")
  (Debug, debug, {}, "")
  (Override, override, {}, "")
  (Generation, generation, {}, "", kOurs)
  (Loss, loss, {}, ""))
// clang-format on

}  // namespace milepost::config
