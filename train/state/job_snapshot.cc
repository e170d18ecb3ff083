#include "train/state/job_snapshot.h"

#include <ATen/CPUGeneratorImpl.h>

#include <array>

#include "milepost/base/error.h"
#include "milepost/engine/ema.h"
#include "milepost/manager/entries.h"
#include "train/state/saved_tensors.h"

namespace milepost::train {
namespace {

bool is_floating(DType dtype) { return dtype_info(dtype).kind == DTypeKind::kFloat; }

class Collector {
 public:
  explicit Collector(manager::StagingBuffers* staging = nullptr) : staging_(staging) {}

  void add(const SavedTensor& tensor, std::optional<DType> cast) {
    const SavedTensor host = on_host(tensor);
    const Dims shape = host.shape();
    const DType dtype = dtype_of(host.memory);
    builder_.add_tensor(host.name, dtype, shape, host.box(), cast && is_floating(dtype) ? *cast : dtype);
    // A copy out of a device is nobody's but the snapshot's.
    const bool is_live = staging_ != nullptr && host.memory.is_same(tensor.memory);
    for (const SavedTensor::Piece& piece : host.pieces()) {
      builder_.add_piece(piece.box, is_live ? staging_->place(piece.bytes) : piece.bytes);
    }
  }
  void add(const SavedTensor& tensor) { add(tensor, std::nullopt); }
  void add(std::string_view name, const pickle::Value* value) {
    builder_.add_object(std::string(name), value);
  }
  pickle::Builder& values() { return builder_.values(); }

  JobSnapshot finish() && { return {std::move(builder_).finish(), std::move(copies_)}; }

 private:
  // Fused parts share a parameter, whose copy is made once.
  SavedTensor on_host(const SavedTensor& tensor) {
    if (tensor.memory.is_cpu() && tensor.memory.is_contiguous()) return tensor;
    SavedTensor host = tensor;
    if (!last_.is_same(tensor.memory)) {
      last_ = tensor.memory;
      copies_.push_back(tensor.memory.cpu().contiguous());
    }
    host.memory = copies_.back();
    return host;
  }

  manager::StagingBuffers* staging_;
  SnapshotBuilder builder_;
  std::vector<at::Tensor> copies_;
  at::Tensor last_;
};

void add_model(const Model& model, std::optional<DType> dtype, Collector& out) {
  for (const Parameter* parameter : model.parameters()) {
    for (const SavedTensor& tensor : saved_tensors(*parameter)) out.add(tensor, dtype);
    if (parameter->saved && !parameter->tied_name.empty()) {
      out.add(saved_like(parameter->tied_name, *parameter, parameter->local.detach()), dtype);
    }
  }
}

manager::AdamGroup adam_group(const Optimizer& optimizer, const ParameterGroup& group) {
  const config::OptimizerKwargs& kwargs = group.options.optimizer_kwargs;
  const std::string_view implementation = optimizer.options().implementation.text();
  return {.fused = implementation.starts_with("fused"),
          .foreach = implementation == "foreach",
          .lr = group.lr,
          .beta1 = kwargs.betas[0],
          .beta2 = kwargs.betas[1],
          .eps = kwargs.eps,
          .weight_decay = kwargs.weight_decay,
          .decoupled_weight_decay = group.options.optimizer_name == "AdamW",
          .initial_lr = kwargs.lr};
}

// torch lists all states, then all options.
void add_optimizer(Optimizer& optimizer, Collector& out) {
  optimizer.materialize();
  for (const ParameterGroup& group : optimizer.groups()) {
    for (size_t i = 0; i < group.parameters.size(); ++i) {
      const Parameter& parameter = *group.parameters[i];
      const Moments& moments = group.moments[i];
      const auto key = [&](const char* state) { return manager::optimizer_state_key(parameter.name, state); };
      out.add(saved_whole(key("step"), moments.step));
      out.add(saved_like(key("exp_avg"), parameter, moments.exp_avg));
      out.add(saved_like(key("exp_avg_sq"), parameter, moments.exp_avg_sq));
    }
  }
  for (const ParameterGroup& group : optimizer.groups()) {
    const auto values = manager::adam_values(out.values(), adam_group(optimizer, group));
    for (const Parameter* parameter : group.parameters) {
      for (size_t i = 0; i < values.size(); ++i) {
        out.add(manager::param_group_key(parameter->name, manager::kAdamOptions[i]), values[i]);
      }
    }
  }
}

void add_average(Ema& ema, Collector& out) {
  const EmaCopy own = own_ema();
  for (const Ema::Average& average : ema.averages()) {
    out.add(saved_like(own.key(average.parameter->name), *average.parameter, average.values));
  }
}

void add_data(const Job& job, Collector& out) {
  bool is_exact = true;
  out.add(manager::data_rank_key(job.dp_rank), out.values().bytes(job.data->titan_entry(&is_exact)));
  out.add(manager::kDataWorldKey, out.values().integer(job.dp_world));
}

at::Generator& generator() {
  static at::Generator default_generator = at::detail::getDefaultCPUGenerator();
  return default_generator;
}

}  // namespace

std::string rng_state() {
  const std::lock_guard lock(generator().mutex());
  const at::Tensor state = generator().get_state();
  return {static_cast<const char*>(state.data_ptr()), static_cast<size_t>(state.nbytes())};
}

void set_rng_state(const std::string& state) {
  at::Tensor bytes = at::empty({static_cast<int64_t>(state.size())}, at::kByte);
  std::memcpy(bytes.data_ptr(), state.data(), state.size());
  const std::lock_guard lock(generator().mutex());
  try {
    generator().set_state(bytes);
  } catch (const c10::Error& error) {
    throw FormatError(ErrorCode::kBadFormat, "it is no state of a generator of random numbers: " +
                                                 std::string(error.what_without_backtrace()));
  }
}

void seed_rng(uint64_t seed) {
  const std::lock_guard lock(generator().mutex());
  generator().set_current_seed(seed);
}

JobSnapshot snapshot_of_job(const Job& job, const std::string& run_record, manager::StagingBuffers* staging) {
  Collector out(staging);
  out.add(manager::kStepKey, out.values().integer(job.train->step));
  out.add(manager::kTokensKey, out.values().integer(job.train->ntokens_seen));
  add_optimizer(*job.optimizer, out);
  if (job.data != nullptr) add_data(job, out);
  out.add(manager::kEpochKey, out.values().integer(job.scheduler->last_epoch()));
  if (job.ema != nullptr) add_average(*job.ema, out);
  add_model(*job.model, std::nullopt, out);
  out.add(manager::rng_key(job.rank()), out.values().bytes(rng_state()));
  if (job.data != nullptr) {
    const std::vector<std::string> parts =
        job.groups == nullptr ? std::vector<std::string>{job.data->ledger_part()}
                              : all_gather_strings(job.groups->group("batch"), job.data->ledger_part());
    out.add(manager::kLedgerKey, out.values().string(data::join_ledger(parts)));
  }
  out.add(manager::kRunKey, out.values().string(run_record));
  return std::move(out).finish();
}

JobSnapshot snapshot_of_model(const Model& model, std::optional<DType> dtype) {
  Collector out;
  add_model(model, dtype, out);
  return std::move(out).finish();
}

}  // namespace milepost::train
