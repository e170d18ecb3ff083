// milepost-train: trains a model, started with TorchTitan's command line. This file: what happens before
// training, and how a run ends. Exit status: 0 done; 2 a wrong command line or configuration; 128 + N stopped
// by signal N, after the step that it came in; 1 any other failure.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <new>
#include <numeric>
#include <string>
#include <vector>

#include "milepost/base/error.h"
#include "milepost/config/bundled.h"
#include "milepost/config/command_line.h"
#include "milepost/config/config_file.h"
#include "train/run/config_files.h"
#include "train/run/environment.h"
#include "train/run/generate.h"
#include "train/run/log.h"
#include "train/run/plan.h"
#include "train/run/run_data.h"
#include "train/run/training.h"

namespace milepost::train {
namespace {

constexpr int kDone = 0, kFailed = 1, kUsage = 2, kSignal = 128;

void print(std::FILE* stream, const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stream) != text.size() || std::fflush(stream) != 0) {
    throw StorageError(ErrorCode::kIo, "cannot write",
                       stream == stdout ? "standard output" : "standard error", errno);
  }
}

void check_assets(const std::string& path) {
  if (!std::filesystem::exists(config::find_bundled(path))) {
    log_warning(fmt::format("HF assets path {} does not exist!", path));
  } else if (path.ends_with("tokenizer.model")) {
    throw config::LaunchError(
        "Exception", fmt::format("{} is a tokenizer of the old kind; get the new one (python "
                                 "scripts/download_hf_assets.py --repo_id meta-llama/Llama-3.1-8B --assets "
                                 "tokenizer) and give its folder as hf_assets_path.",
                                 path));
  }
}

// What debug.print_config and debug.save_config_file ask for.
void show_config(const config::Launch& launch) {
  const config::Debug& debug = launch.trainer.debug;
  if (!debug.print_config && !debug.save_config_file) return;
  const std::string text = config::config_file_text(launch.trainer, launch.module, launch.entry);
  if (debug.print_config) log_info("Running with configs: " + text);
  if (!debug.save_config_file || rank() != 0) return;
  const std::string path =
      write_config_file(launch.trainer.dump_folder, *debug.save_config_file, text + "\n");
  log_info("Saved job configs to " + path);
}

void check_build(const config::Launch& launch) {
  config::check_override_targets(launch.trainer.override.imports);
  config::validate_build(launch.trainer);
  const std::vector<std::string> missing = config::missing_for_build(launch.trainer);
  if (missing.empty()) return;
  std::string text = fmt::format("{} cannot be built by this version of Milepost. It needs:", launch.entry);
  for (const std::string& need : missing) text += "\n  - " + need;
  throw config::LaunchError("ValueError", text);
}

bool is_fake(const config::Trainer& config) { return config.comm.mode == "fake_backend"; }

// Of the ranks that one process stands for or that were started. Without either, the degrees alone say how
// many.
DeviceMesh planned_mesh(const config::Trainer& config) {
  if (is_fake(config)) return {resolve_degrees(config.parallelism, fake_world_size()), rank()};
  config::Parallelism degrees = config.parallelism;
  if (world_size() > 1) return {resolve_degrees(degrees, world_size()), rank()};
  if (degrees.data_parallel_shard_degree == -1) {
    // As few as give the experts their ranks.
    const int64_t inner =
        std::max<int64_t>(1, degrees.context_parallel_degree * degrees.tensor_parallel_degree);
    const int64_t experts = std::max<int64_t>(1, degrees.expert_parallel_degree);
    degrees.data_parallel_shard_degree = experts / std::gcd(experts, inner);
  }
  int64_t ranks = 1;
  for (const int64_t degree :
       {degrees.data_parallel_replicate_degree, degrees.data_parallel_shard_degree,
        degrees.context_parallel_degree, degrees.tensor_parallel_degree, degrees.pipeline_parallel_degree}) {
    ranks = std::min(ranks * std::clamp<int64_t>(degree, 1, kMaxRanks), kMaxRanks);
  }
  return {resolve_degrees(degrees, ranks), 0};
}

int run(const std::vector<std::string>& arguments) {
  if (arguments == std::vector<std::string>{"--configuration-reference"}) {
    print(stdout, config::configuration_reference());
    return kDone;
  }
  const config::Launch launch = config::parse_command_line(arguments, config::Machine{}, read_config_file);
  if (launch.action == config::Launch::Action::kPrintText) {
    print(stdout, launch.text);
    return kDone;
  }
  log_info(fmt::format("milepost version: {}", MILEPOST_VERSION));
  for (const std::string& warning : launch.warnings) log_warning(warning);
  check_assets(launch.trainer.hf_assets_path);
  if (launch.trainer.comm.mode == "local_tensor") {
    log_info("Local tensor mode enabled - skipping training execution");
    return kDone;
  }
  show_config(launch);
  if (is_fake(launch.trainer) && fake_world_size() > 1) {
    log_info(fmt::format("One process stands for {} ranks (rank {})", fake_world_size(), rank()));
  }
  check_build(launch);
  if (launch.action == config::Launch::Action::kCountTokens) {
    const int64_t world = is_fake(launch.trainer) ? fake_world_size() : world_size();
    config::Parallelism degrees = launch.trainer.parallelism;
    degrees.expert_parallel_degree = 1;  // experts' ranks are those of the other dimensions
    count_tokens(launch.trainer, data_rank({resolve_degrees(degrees, world), rank()}));
    return kDone;
  }
  if (launch.action == config::Launch::Action::kGenerate) {
    print(stdout, generate(launch.trainer, launch.text) + "\n");
    return kDone;
  }
  const bool is_dry = launch.action == config::Launch::Action::kDryRun || launch.trainer.training.steps == 0;
  if (is_dry) {
    show_plan(launch.trainer, planned_mesh(launch.trainer));
    return kDone;
  }
  const RunEnd end = run_training(launch.trainer);
  return end.signal == 0 ? kDone : kSignal + end.signal;
}

int guarded_run(const std::vector<std::string>& arguments) {
  try {
    return run(arguments);
  } catch (const config::UsageError& error) {
    print(stderr, error.box());
    return kUsage;
  } catch (const config::LaunchError& error) {
    print(stderr, fmt::format("{}: {}\n", error.kind(), error.what()));
  } catch (const ValueError& error) {
    print(stderr, fmt::format("ValueError: {}\n", error.what()));
  } catch (const StorageError& error) {
    const bool is_missing = error.code() == ErrorCode::kNotFound;
    print(stderr, fmt::format("{}: {}\n", is_missing ? "FileNotFoundError" : "OSError", error.what()));
  } catch (const CheckpointManifestError& error) {
    print(stderr, fmt::format("CheckpointManifestError: {}\n", error.what()));
  } catch (const NonFiniteError& error) {
    print(stderr, fmt::format("RuntimeError: {}\n", error.what()));
  } catch (const std::bad_alloc&) {
    print(stderr, "MemoryError: out of memory; --training.steps 0 shows what a run needs\n");
  } catch (const std::exception& error) {
    print(stderr, fmt::format("RuntimeError: {}\n", error.what()));
  }
  return kFailed;
}

// A standard stream that the caller closed would lend its number to the next file that is opened, and log
// lines would then go into a checkpoint.
void hold_standard_descriptors() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (::fcntl(fd, F_GETFD) != -1) continue;
    if (::open("/dev/null", fd == STDIN_FILENO ? O_RDONLY : O_WRONLY) != fd) std::abort();
  }
}

}  // namespace
}  // namespace milepost::train

int main(int argc, char** argv) {
  milepost::train::hold_standard_descriptors();
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow (ulimit -f) is an error of the write
  try {
    return milepost::train::guarded_run({argv + 1, argv + argc});
  } catch (...) {
    return 1;  // not even the error could be printed
  }
}
