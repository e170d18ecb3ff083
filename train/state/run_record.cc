#include "train/state/run_record.h"

#include <fmt/format.h>

#include "milepost/config/config_file.h"

namespace milepost::train {
namespace {

void forget_paths(config::Dataloader& data) {
  data.dataset_path.reset();
  data.token_cache.reset();
  for (config::DataSource& source : data.sources) source.dataset_path.reset();
}

}  // namespace

std::string run_record(const config::Trainer& config) {
  config::Trainer portable = config;
  portable.hf_assets_path.clear();
  portable.dump_folder.clear();
  portable.comm = {};
  forget_paths(portable.dataloader);
  forget_paths(portable.validator.dataloader);
  portable.checkpoint.folder = {};
  portable.checkpoint.initial_load_path.reset();
  const config::Parallelism& degrees = config.parallelism;
  const flavor::Model& model = config.model.architecture;
  return fmt::format(
      R"({{"version": "{}", "model": "{}", "flavor": "{}", "mesh": {{"pp": {}, "dp_replicate": {}, )"
      R"("dp_shard": {}, "cp": {}, "tp": {}, "ep": {}}}, "config": {}}})",
      MILEPOST_VERSION, model.model(), model.name, degrees.pipeline_parallel_degree,
      degrees.data_parallel_replicate_degree, degrees.data_parallel_shard_degree,
      degrees.context_parallel_degree, degrees.tensor_parallel_degree, degrees.expert_parallel_degree,
      config::config_file_text(portable, "", ""));
}

}  // namespace milepost::train
