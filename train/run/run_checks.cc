#include "train/run/run_checks.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <utility>
#include <vector>

#include "milepost/base/error.h"
#include "milepost/config/registry.h"
#include "milepost/manager/policy.h"
#include "milepost/storage/directories.h"
#include "train/run/environment.h"

namespace milepost::train {
namespace {

void check_least(const char* name, int64_t value, int64_t least) {
  if (value < least) throw ValueError(fmt::format("{} must be at least {}, got {}", name, least, value));
}

void check_chunks(const config::Trainer& trainer) {
  const auto* chunked = std::get_if<config::ChunkedLoss>(&trainer.loss);
  if (chunked == nullptr) return;
  check_least("loss.num_chunks", chunked->num_chunks, 1);
  if (trainer.training.seq_len % chunked->num_chunks == 0) return;
  throw ValueError(fmt::format("ChunkedLossWrapper sequence length must be divisible by num_chunks ({} % {} "
                               "!= 0)",
                               trainer.training.seq_len, chunked->num_chunks),
                   "change training.seq_len or loss.num_chunks");
}

void check_profiler(const config::Profiler& profiler) {
  if (!profiler.enable_profiling) return;
  check_least("profiler.profiler_active", profiler.profiler_active, 1);
  check_least("profiler.profiler_warmup", profiler.profiler_warmup, 0);
  if (profiler.profile_freq < profiler.profiler_active + profiler.profiler_warmup) {
    throw ValueError(
        fmt::format("profiler.profile_freq ({}) must be at least profiler_warmup + "
                    "profiler_active ({} + {})",
                    profiler.profile_freq, profiler.profiler_warmup, profiler.profiler_active));
  }
}

}  // namespace

void check_settings(const config::Trainer& trainer) {
  const config::Training& t = trainer.training;
  check_least("training.local_batch_size", t.local_batch_size, 1);
  check_least("training.seq_len", t.seq_len, 1);
  check_least("training.steps", t.steps, 0);
  check_least("metrics.log_freq", trainer.metrics.log_freq, 1);
  check_least("debug.prove_resume", trainer.debug.prove_resume, 0);
  if (trainer.validator.enable) check_least("validator.freq", trainer.validator.freq, 1);
  check_chunks(trainer);
  check_profiler(trainer.profiler);
  if (trainer.metrics.enable_wandb) {
    throw ValueError("metrics.enable_wandb: this version cannot send to Weights & Biases",
                     "use --metrics.enable-tensorboard, or metrics.jsonl in the dump folder");
  }
}

void check_parallelism(const config::Parallelism& degrees) {
  const std::pair<const char*, int64_t> later[] = {
      {"tensor_parallel_degree", degrees.tensor_parallel_degree},
      {"context_parallel_degree", degrees.context_parallel_degree},
      {"pipeline_parallel_degree", degrees.pipeline_parallel_degree},
      {"expert_parallel_degree", degrees.expert_parallel_degree}};
  std::vector<std::string> wanted;
  for (const auto& [name, degree] : later) {
    if (degree > 1) wanted.push_back(fmt::format("parallelism.{} {}", name, degree));
  }
  if (wanted.empty()) return;
  throw ValueError(
      fmt::format("this version of Milepost shards and replicates the model, and divides it in no other way; "
                  "asked for: {}",
                  fmt::join(wanted, ", ")),
      "set these degrees to 1; --training.steps 0 shows the sizes of any model");
}

void check_writable(const std::string& folder, std::string_view what) {
  try {
    make_directories(*posix_storage(), folder);
  } catch (const StorageError& error) {
    throw StorageError(error.code(), fmt::format("cannot make the {}", what), folder, error.error_number());
  }
  const std::string probe =
      (std::filesystem::path(folder) / fmt::format(".milepost-write-test.{}", ::getpid())).string();
  const int file = ::open(probe.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0) {
    const int number = errno;
    throw StorageError(ErrorCode::kIo, fmt::format("cannot write into the {}", what), folder, number);
  }
  ::close(file);
  ::unlink(probe.c_str());
}

void check_folders(const config::Trainer& trainer) {
  manager::check_supported(trainer);  // a folder that is elsewhere is not made here
  check_writable(trainer.dump_folder, "dump folder");
  const config::Checkpoint& options = trainer.checkpoint;
  if (options.enable && !options.load_only) {
    check_writable(manager::checkpoint_folder(trainer), "checkpoint folder");
  }
}

config::Trainer config_of_seed(config::Trainer trainer) {
  if (world_size() != 1 || trainer.comm.mode == "fake_backend") {
    throw config::LaunchError("AssertionError",
                              "Must create seed checkpoint using a single device, to disable sharding.");
  }
  if (!trainer.checkpoint.enable) {
    throw config::LaunchError("AssertionError", "Must enable checkpointing when creating a seed checkpoint.");
  }
  if (trainer.checkpoint.load_only) {
    throw ValueError("checkpoint.load_only forbids the save that checkpoint.create_seed_checkpoint asks for",
                     "add --checkpoint.no-load-only");
  }
  trainer.device = "cpu";
  return trainer;
}

}  // namespace milepost::train
