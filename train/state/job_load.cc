#include "train/state/job_load.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "milepost/base/checked_math.h"
#include "milepost/base/error.h"
#include "milepost/engine/load.h"
#include "milepost/manager/entries.h"
#include "milepost/manager/fit.h"
#include "milepost/manager/steps.h"
#include "train/parallel/failure_board.h"
#include "train/state/job_snapshot.h"
#include "train/state/saved_tensors.h"
#include "train/state/shared_load.h"
#include "train/state/together.h"

namespace milepost::train {
namespace {

using manager::AdamGroup;
using manager::Message;
using manager::WantedEntry;

// Options of a group that change what a step computes; the others may be absent in states of older versions.
constexpr std::string_view kNeededOptions[] = {"lr", "betas", "eps", "weight_decay"};

// For measurements, and for storage that no page cache stands before.
bool is_set_to_share_on_one_host() {
  const char* text = std::getenv("MILEPOST_SHARE_READS");
  return text != nullptr && std::string_view(text) == "1";
}

// Tensors that are to be filled. One that is not on the host, or not contiguous, goes by way of a copy.
class Targets {
 public:
  void add(const SavedTensor& wanted) {
    SavedTensor host = wanted;
    if (!wanted.memory.is_cpu() || !wanted.memory.is_contiguous()) {
      if (copies_.empty() || !copies_.back().first.is_same(wanted.memory)) {
        copies_.emplace_back(wanted.memory, wanted.memory.cpu().contiguous());
      }
      host.memory = copies_.back().second;
    }
    const DType dtype = dtype_of(host.memory);
    for (const SavedTensor::Piece& piece : host.pieces()) {
      targets_.push_back({host.name, dtype, host.shape(), piece.box, piece.bytes.data(), {}});
    }
  }
  // Compares with the checkpoint. Returns what the other ranks have to know.
  std::string plan(const std::shared_ptr<const Checkpoint>& checkpoint) {
    plan_.emplace(checkpoint, targets_);
    return describe_wants(*plan_, host_name(), is_set_to_share_on_one_host());
  }
  // Decides, with what all ranks have returned from plan(), who reads what, and gets ready for it.
  void prepare(const std::vector<std::string>& wants, ProcessGroups* groups) {
    std::vector<SharedPieces> shared;
    if (groups != nullptr && groups->store() != nullptr) shared = share_reads(*plan_, wants, groups->mesh());
    load_.emplace(*plan_, shared, groups);
  }
  // All ranks together, once all have returned from prepare().
  void fill(ProcessGroups* groups, std::vector<Message>* messages) {
    const at::NoGradGuard no_grad;
    const SharedLoadReport report = load_->carry_out();
    if (groups != nullptr) {
      messages->push_back({false, fmt::format("Read {} bytes of the checkpoint, and had {} from other ranks",
                                              report.bytes_read, report.bytes_received)});
    }
    for (auto& [tensor, copy] : copies_) tensor.copy_(copy);
  }
  // How many tensors another dtype is saved of, for the log.
  void report_casts(const Catalog& catalog, std::vector<Message>* messages) const {
    int64_t count = 0;
    std::string example;
    for (const LoadTarget& target : targets_) {
      const std::optional<int64_t> tensor = catalog.find_tensor(target.name);
      if (!tensor) continue;
      const DType saved = catalog.tensors()[static_cast<size_t>(*tensor)].dtype;
      if (saved == target.dtype) continue;
      if (count++ == 0) {
        example = fmt::format("{} from {} to {}", target.name, dtype_name(saved), dtype_name(target.dtype));
      }
    }
    if (count != 0) {
      messages->push_back(
          {false, fmt::format("Tensors are cast while loading ({} of them, such as {})", count, example)});
    }
  }

 private:
  std::vector<LoadTarget> targets_;
  std::optional<LoadPlan> plan_;
  std::optional<SharedLoad> load_;
  std::vector<std::pair<at::Tensor, at::Tensor>> copies_;
};

void want_model(const Model& model, std::vector<WantedEntry>* wanted, Targets* targets) {
  for (const Parameter* parameter : model.parameters()) {
    for (const SavedTensor& tensor : saved_tensors(*parameter)) {
      wanted->push_back({tensor.name, false, tensor.shape()});
      targets->add(tensor);
    }
  }
}

// A second name of tied weights is expected, and not needed.
void forget_tied_names(const Model& model, manager::Fit* fit) {
  for (const Parameter* parameter : model.parameters()) std::erase(fit->unexpected, parameter->tied_name);
}

void warn_unexpected(const manager::Fit& fit, std::vector<Message>* messages) {
  if (fit.unexpected.empty()) return;
  messages->push_back(
      {true, fmt::format("The checkpoint holds tensors that the model has not, which are left "
                         "out: {}",
                         manager::names_text(fit.unexpected, 10))});
}

// The values of a checkpoint, each decoded when it is asked for.
class Values {
 public:
  explicit Values(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {}
  bool has(std::string_view key) const { return checkpoint_.catalog().find_object(key).has_value(); }
  // Requires has(key).
  int64_t count(std::string_view key) const { return manager::read_count(key, *object(key).value); }
  std::string text(std::string_view key) const { return manager::read_text(key, *object(key).value); }
  void adam_option(const std::string& parameter, std::string_view option, AdamGroup* group) const {
    const std::string key = manager::param_group_key(parameter, option);
    if (has(key)) manager::read_adam_option(parameter, option, *object(key).value, group);
  }

 private:
  ObjectValue object(std::string_view key) const {
    return checkpoint_.read_object(*checkpoint_.catalog().find_object(key));
  }
  const Checkpoint& checkpoint_;
};

class JobLoad {
 public:
  JobLoad(std::shared_ptr<const Checkpoint> checkpoint, const std::vector<std::string>& parts, const Job& job,
          const std::optional<EmaCopy>& average)
      : checkpoint_(std::move(checkpoint)),
        parts_(parts),
        job_(job),
        average_(average),
        values_(*checkpoint_) {}

  std::vector<Message> run() {
    const Together ranks(job_.groups);
    const std::vector<std::string> wants = ranks.gather([&] {
      check();
      decode();
      // Throws, and leaves the loader as it was, for states that do not fit.
      if (takes("dataloader")) job_.data->restore(loader_);
      want_moments();
      targets_.report_casts(checkpoint_->catalog(), &messages_);
      return targets_.plan(checkpoint_);
    });
    ranks.all([&] { targets_.prepare(wants, job_.groups); });
    ranks.all([&] {
      targets_.fill(job_.groups, &messages_);
      apply();
    });
    return std::move(messages_);
  }

 private:
  bool takes(std::string_view part) const {
    return std::find(parts_.begin(), parts_.end(), part) != parts_.end();
  }

  void check() {
    std::vector<WantedEntry> wanted;
    want_model(*job_.model, &wanted, &targets_);
    if (takes("optimizer")) want_optimizer(&wanted);
    if (average_) want_average(&wanted);
    if (takes("lr_scheduler")) wanted.push_back({std::string(manager::kEpochKey), true});
    if (takes("dataloader")) wanted.push_back({std::string(manager::kDataWorldKey), true});
    if (takes("train_state")) {
      wanted.push_back({std::string(manager::kStepKey), true});
      wanted.push_back({std::string(manager::kTokensKey), true});
    }
    manager::Fit fit = manager::compare(checkpoint_->catalog(), wanted, true);
    forget_tied_names(*job_.model, &fit);
    manager::require_fit(fit, checkpoint_->path());
    manager::require_complete(*checkpoint_);
    warn_unexpected(fit, &messages_);
  }

  void want_optimizer(std::vector<WantedEntry>* wanted) const {
    for (const ParameterGroup& group : job_.optimizer->groups()) {
      for (const Parameter* parameter : group.parameters) {
        const Dims shape(parameter->shape.begin(), parameter->shape.end());
        wanted->push_back({manager::optimizer_state_key(parameter->name, "step"), false, {}});
        wanted->push_back({manager::optimizer_state_key(parameter->name, "exp_avg"), false, shape});
        wanted->push_back({manager::optimizer_state_key(parameter->name, "exp_avg_sq"), false, shape});
      }
      for (std::string_view option : kNeededOptions) {
        wanted->push_back({manager::param_group_key(group.parameters[0]->name, option), true});
      }
    }
  }

  void want_average(std::vector<WantedEntry>* wanted) {
    for (const Ema::Average& average : job_.ema->averages()) {
      const Parameter& parameter = *average.parameter;
      targets_.add(saved_like(average_->key(parameter.name), parameter, average.values));
      wanted->push_back(
          {average_->key(parameter.name), false, Dims(parameter.shape.begin(), parameter.shape.end())});
    }
  }

  void decode() {
    if (takes("optimizer")) decode_groups();
    if (takes("lr_scheduler")) last_epoch_ = values_.count(manager::kEpochKey);
    if (takes("train_state")) {
      train_.step = values_.count(manager::kStepKey);
      train_.ntokens_seen = tokens_of_rank();
      decode_random_numbers();
    }
    if (!takes("dataloader")) return;
    const std::string entry = manager::data_rank_key(job_.dp_rank);
    if (values_.has(entry)) loader_.titan_entry = values_.text(entry);
    loader_.titan_world_size = values_.count(manager::kDataWorldKey);
    if (values_.has(manager::kLedgerKey)) loader_.ledger = values_.text(manager::kLedgerKey);
  }

  // What is saved is one rank's, as TorchTitan's: another number of ranks shares what all of them have seen.
  int64_t tokens_of_rank() const {
    const int64_t saved = values_.count(manager::kTokensKey);
    int64_t all = 0;
    const bool is_known = values_.has(manager::kDataWorldKey) &&
                          checked_mul(saved, values_.count(manager::kDataWorldKey), &all);
    return is_known ? all / job_.dp_world : saved;
  }

  // A rank that the saved job had not goes on with numbers of its own, which the checkpoint decides.
  void decode_random_numbers() {
    const std::string own = manager::rng_key(job_.rank()), first = manager::rng_key(0);
    if (values_.has(own)) {
      rng_ = values_.text(own);
    } else if (values_.has(first)) {
      rng_seed_ = manager::seed_of_rank(values_.text(first), job_.rank());
      messages_.push_back({false, fmt::format("The checkpoint holds no random numbers of rank {}: they go on "
                                              "from a seed drawn from those of rank 0",
                                              job_.rank())});
    }
  }

  // As TorchTitan: a group takes the options of its first parameter.
  void decode_groups() {
    for (const ParameterGroup& group : job_.optimizer->groups()) {
      AdamGroup options;
      for (std::string_view option : manager::kAdamOptions) {
        values_.adam_option(group.parameters[0]->name, option, &options);
      }
      groups_.push_back(options);
    }
  }

  void want_moments() {
    if (!takes("optimizer")) return;
    job_.optimizer->materialize();
    for (const ParameterGroup& group : job_.optimizer->groups()) {
      for (size_t i = 0; i < group.parameters.size(); ++i) {
        const Parameter& parameter = *group.parameters[i];
        const Moments& moments = group.moments[i];
        const auto key = [&](const char* state) {
          return manager::optimizer_state_key(parameter.name, state);
        };
        targets_.add(saved_whole(key("step"), moments.step));
        targets_.add(saved_like(key("exp_avg"), parameter, moments.exp_avg));
        targets_.add(saved_like(key("exp_avg_sq"), parameter, moments.exp_avg_sq));
      }
    }
  }

  void apply() {
    for (size_t i = 0; i < groups_.size(); ++i) {
      ParameterGroup& group = job_.optimizer->groups()[i];
      config::OptimizerKwargs& kwargs = group.options.optimizer_kwargs;
      kwargs.betas = {groups_[i].beta1, groups_[i].beta2};
      kwargs.eps = groups_[i].eps;
      kwargs.weight_decay = groups_[i].weight_decay;
      group.lr = groups_[i].lr;
    }
    if (takes("lr_scheduler")) job_.scheduler->restore(last_epoch_);
    if (takes("train_state")) *job_.train = train_;
    if (rng_) set_rng_state(*rng_);
    if (rng_seed_) seed_rng(*rng_seed_);
  }

  std::shared_ptr<const Checkpoint> checkpoint_;
  const std::vector<std::string>& parts_;
  const Job& job_;
  const std::optional<EmaCopy>& average_;
  Values values_;
  Targets targets_;
  std::vector<Message> messages_;

  std::vector<AdamGroup> groups_;
  int64_t last_epoch_ = 0;
  TrainState train_;
  data::SavedLoader loader_;
  std::optional<std::string> rng_;  // the generator's state, or
  std::optional<uint64_t> rng_seed_;
};

// Compares a model with a checkpoint of either side's names; see Targets::plan.
std::string plan_model(const std::shared_ptr<const Checkpoint>& checkpoint, const flavor::Model& dims,
                       std::optional<bool> is_quantised, const Model& model, Targets* targets,
                       std::vector<Message>* messages) {
  ModelChoice choice;
  choice.exact = dims;
  if (const auto* v3 = std::get_if<flavor::DeepSeekV3>(&dims.dims)) choice.mtp_layers = v3->num_mtp_layers;
  // Codes become float32 first, so that only the cast to the parameters' dtype rounds.
  const NamedModel native = as_native(checkpoint, choice, DType::kFloat32);
  if (is_quantised && native.dequantised && !*is_quantised) {
    ValueError error("its weights are block-quantised",
                     "add --checkpoint.initial-load-in-hf-quantized to dequantise them while loading");
    error.set_path(checkpoint->path());
    throw error;
  }
  for (const std::string& note : native.notes) messages->push_back({false, "Loading: " + note});
  std::vector<WantedEntry> wanted;
  want_model(model, &wanted, targets);
  manager::Fit fit = manager::compare(native.checkpoint->catalog(), wanted, true);
  forget_tied_names(model, &fit);
  manager::require_fit(fit, checkpoint->path());
  manager::require_complete(*checkpoint);
  warn_unexpected(fit, messages);
  targets->report_casts(native.checkpoint->catalog(), messages);
  return targets->plan(native.checkpoint);
}

}  // namespace

std::vector<Message> load_job(const std::shared_ptr<const Checkpoint>& checkpoint,
                              const std::vector<std::string>& parts, const Job& job,
                              const std::optional<EmaCopy>& average) {
  return JobLoad(checkpoint, parts, job, average).run();
}

std::vector<Message> load_model(const std::shared_ptr<const Checkpoint>& checkpoint,
                                const flavor::Model& dims, std::optional<bool> is_quantised, const Job& job) {
  const Together ranks(job.groups);
  std::vector<Message> messages;
  Targets targets;
  const std::vector<std::string> wants = ranks.gather(
      [&] { return plan_model(checkpoint, dims, is_quantised, *job.model, &targets, &messages); });
  ranks.all([&] { targets.prepare(wants, job.groups); });
  ranks.all([&] { targets.fill(job.groups, &messages); });
  return messages;
}

}  // namespace milepost::train
