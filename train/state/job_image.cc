#include "train/state/job_image.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "milepost/engine/ema.h"
#include "milepost/manager/entries.h"
#include "train/state/job_snapshot.h"

namespace milepost::train {
namespace {

using Tensors = std::vector<std::pair<std::string, at::Tensor>>;
using Values = std::vector<std::pair<std::string, std::string>>;

Tensors tensors_of(const Job& job) {
  Tensors tensors;
  for (const Parameter* parameter : job.model->parameters()) {
    tensors.emplace_back(parameter->name, parameter->local.detach());
  }
  job.optimizer->materialize();
  for (const ParameterGroup& group : job.optimizer->groups()) {
    for (size_t i = 0; i < group.parameters.size(); ++i) {
      const std::string& name = group.parameters[i]->name;
      const Moments& moments = group.moments[i];
      tensors.emplace_back(manager::optimizer_state_key(name, "step"), moments.step);
      tensors.emplace_back(manager::optimizer_state_key(name, "exp_avg"), moments.exp_avg);
      tensors.emplace_back(manager::optimizer_state_key(name, "exp_avg_sq"), moments.exp_avg_sq);
    }
  }
  if (job.ema == nullptr) return tensors;
  for (const Ema::Average& average : job.ema->averages()) {
    tensors.emplace_back(own_ema().key(average.parameter->name), average.values);
  }
  return tensors;
}

Values values_of(const Job& job) {
  Values values = {{std::string(manager::kStepKey), std::to_string(job.train->step)},
                   {std::string(manager::kTokensKey), std::to_string(job.train->ntokens_seen)},
                   {std::string(manager::kEpochKey), std::to_string(job.scheduler->last_epoch())}};
  for (const ParameterGroup& group : job.optimizer->groups()) {
    if (group.parameters.empty()) continue;
    values.emplace_back(manager::param_group_key(group.parameters[0]->name, "lr"),
                        fmt::format("{}", group.lr));
  }
  values.emplace_back(manager::rng_key(job.rank()), rng_state());
  if (job.data == nullptr) return values;
  bool is_exact = true;
  values.emplace_back(manager::data_rank_key(job.dp_rank), job.data->titan_entry(&is_exact));
  values.emplace_back(manager::kLedgerKey, job.data->ledger_part());
  return values;
}

at::Tensor on_host(const at::Tensor& tensor) { return tensor.cpu().contiguous(); }

std::string place_text(const at::Tensor& tensor, int64_t element) {
  std::vector<int64_t> place(static_cast<size_t>(tensor.dim()));
  for (int64_t d = tensor.dim() - 1; d >= 0; --d) {
    place[static_cast<size_t>(d)] = element % tensor.size(d);
    element /= tensor.size(d);
  }
  return fmt::format("[{}]", fmt::join(place, ", "));
}

// Empty where all bits are the same.
std::string tensor_difference(const std::string& name, const at::Tensor& then, const at::Tensor& now) {
  if (then.sizes() != now.sizes() || then.scalar_type() != now.scalar_type()) {
    return fmt::format("{}: another shape or dtype", name);
  }
  const auto* const a = static_cast<const std::byte*>(then.data_ptr());
  const auto* const b = static_cast<const std::byte*>(now.data_ptr());
  if (then.nbytes() == 0 || std::memcmp(a, b, then.nbytes()) == 0) return {};
  const auto at = std::mismatch(a, a + then.nbytes(), b).first - a;
  const auto element = at / static_cast<int64_t>(then.element_size());
  return fmt::format("{}, element {} of this rank's part: {} and {}", name, place_text(then, element),
                     then.view(-1)[element].item<double>(), now.view(-1)[element].item<double>());
}

bool is_short_text(const std::string& value) {
  return value.size() <= 40 &&
         std::all_of(value.begin(), value.end(), [](char letter) { return letter >= ' ' && letter <= '~'; });
}

std::string value_difference(const std::string& name, const std::string& then, const std::string& now) {
  if (then == now) return {};
  if (is_short_text(then) && is_short_text(now)) return fmt::format("{}: {} and {}", name, then, now);
  const auto at = std::mismatch(then.begin(), then.end(), now.begin(), now.end()).first - then.begin();
  return fmt::format("{}: {} and {} bytes that differ from byte {} on", name, then.size(), now.size(), at);
}

}  // namespace

JobImage::JobImage(const Job& job) : values_(values_of(job)) {
  for (auto& [name, tensor] : tensors_of(job)) {
    const at::Tensor host = on_host(tensor);
    tensors_.emplace_back(std::move(name), host.is_same(tensor) ? host.clone() : host);
  }
}

int64_t JobImage::size_bytes() const {
  int64_t bytes = 0;
  for (const auto& [name, tensor] : tensors_) bytes += static_cast<int64_t>(tensor.nbytes());
  return bytes;
}

std::string JobImage::difference(const Job& job) const {
  const Tensors tensors = tensors_of(job);
  const Values values = values_of(job);
  if (tensors.size() != tensors_.size() || values.size() != values_.size()) return "another number of parts";
  for (size_t i = 0; i < tensors.size(); ++i) {
    std::string text = tensor_difference(tensors_[i].first, tensors_[i].second, on_host(tensors[i].second));
    if (!text.empty()) return text;
  }
  for (size_t i = 0; i < values.size(); ++i) {
    std::string text = value_difference(values_[i].first, values_[i].second, values[i].second);
    if (!text.empty()) return text;
  }
  return {};
}

}  // namespace milepost::train
