#include "train/numerics/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

namespace milepost::train {

const Tolerances kFloat32Tolerances = {.logits = 5e-5,
                                       .hidden = 5e-5,
                                       .first_loss = 1e-5,
                                       .loss = 1e-4,
                                       .grad_norm = 1e-4,
                                       .parameter_norm = 1e-4,
                                       .gradient = 1e-4,
                                       .parameter = 5e-4,
                                       .margin = 1e-4,
                                       .noise = 4e-6};
const Tolerances kBFloat16ExpertsTolerances = {.logits = 1e-2,
                                               .hidden = 1e-2,
                                               .first_loss = 5e-4,
                                               .loss = 3e-3,
                                               .grad_norm = 3e-3,
                                               .parameter_norm = 1e-3,
                                               .gradient = 3e-2,
                                               .parameter = 2e-2,
                                               .margin = 2e-3,
                                               .noise = 1e-4};
const Tolerances kBFloat16Tolerances = {.logits = 2e-1,
                                        .hidden = 2e-1,
                                        .first_loss = 2e-2,
                                        .loss = 5e-2,
                                        .grad_norm = 5e-2,
                                        .parameter_norm = 1e-2,
                                        .gradient = 2e-1,
                                        .parameter = 5e-2,
                                        .margin = 2e-2,
                                        .noise = 2e-2};

namespace {

using Json = nlohmann::ordered_json;

struct Tolerance {
  double absolute = 0, relative = 0;
};
constexpr Tolerance kExact = {};

bool has_experts(const Fixture& fixture) {
  const auto* dims = std::get_if<flavor::DeepSeekV3>(&fixture.trainer.model.architecture.dims);
  return dims != nullptr && dims->n_dense_layers < dims->n_layers;
}

class Comparison {
 public:
  Comparison(const Fixture& fixture, const Expected& expected, const Recorded& recorded)
      : fixture_(fixture),
        expected_(expected),
        recorded_(recorded),
        tol_(tolerances_for(fixture, expected)) {}

  std::map<std::string, GroupResult> run() {
    for (const auto& [name, value] : expected_.values.items()) {
      if (name == "steps") {
        compare_steps(value);
      } else if (name == "forward") {
        compare_forward(value);
      } else if (name != "mode") {
        compare_curve(name, value);
      }
    }
    for (const auto& [name, tensor] : expected_.tensors) compare_tensor(name, tensor);
    return std::move(groups_);
  }

 private:
  void note(const std::string& group, const std::string& where, double expected, double got,
            Tolerance tolerance) {
    const double allowed = tolerance.absolute + tolerance.relative * std::abs(expected);
    const double difference = std::abs(got - expected);
    const bool is_off = !(difference <= allowed);
    GroupResult& result = groups_[group];
    ++result.num_values;
    result.num_off += is_off ? 1 : 0;
    double ratio =
        allowed > 0 ? difference / allowed : (is_off ? std::numeric_limits<double>::infinity() : 0);
    if (std::isnan(ratio)) ratio = std::numeric_limits<double>::infinity();
    if (result.num_values > 1 && ratio <= result.worst) return;
    result.worst = ratio;
    result.worst_text = fmt::format("{}{}got {:.9g}, expected {:.9g}, allowed difference {:.3g}", where,
                                    where.empty() ? "" : ": ", got, expected, allowed);
  }

  void fail(const std::string& group, const std::string& text) {
    GroupResult& result = groups_[group];
    ++result.num_values;
    ++result.num_off;
    result.worst = std::numeric_limits<double>::infinity();
    result.worst_text = text;
  }

  // Numbers in lists and objects of the same form. `tolerance` of a leaf.
  void compare_json(const std::string& group, const std::string& where, const Json& expected, const Json& got,
                    Tolerance tolerance) {
    const std::string at = where.empty() ? "" : where + ", ";
    if (expected.is_number() && got.is_number()) {
      note(group, where, expected.get<double>(), got.get<double>(), tolerance);
    } else if (expected.is_array() && got.is_array() && expected.size() == got.size()) {
      groups_[group];
      for (size_t i = 0; i < expected.size(); ++i) {
        compare_json(group, fmt::format("{}[{}]", where, i), expected[i], got[i], tolerance);
      }
    } else if ((expected.is_object() || expected.empty()) && (got.is_object() || got.empty())) {
      groups_[group];
      for (const auto& [name, value] : expected.items()) {
        if (got.contains(name)) {
          compare_json(group, at + name, value, got[name], tolerance);
        } else {
          fail(group, at + name + ": the run has no such value");
        }
      }
    } else {
      fail(group, where + ": another kind or number of values than expected");
    }
  }

  void compare_forward(const Json& expected) {
    const Json& got = recorded_.values["forward"];
    for (const auto& [name, value] : expected.items()) {
      const std::string group = "forward." + name;
      if (!got.contains(name)) {
        fail(group, "the run has no such value");
      } else {
        compare_json(group, "", value, got[name], forward_tolerance(name, got));
      }
    }
  }

  Tolerance forward_tolerance(std::string_view name, const Json& got) const {
    if (name == "valid_tokens") return kExact;
    if (name == "router_min_margin") return {tol_.margin};
    if (name == "loss_sum") return {tol_.first_loss * got["valid_tokens"].get<double>()};
    if (name == "mtp_loss") return {10 * tol_.first_loss};  // a difference of the others, over mtp_scale
    return {tol_.first_loss};
  }

  void compare_curve(const std::string& name, const Json& expected) {
    const auto got = recorded_.values.find(name);
    if (got == recorded_.values.end()) {
      fail(name, "nothing here computes this");
      return;
    }
    if (!expected.is_array() || !got->is_array() || expected.size() != got->size()) {
      fail(name, "another number of steps than expected");
      return;
    }
    for (size_t i = 0; i < expected.size(); ++i) {
      Tolerance tolerance = {tol_.loss};
      if (name == "lr_used") tolerance = {1e-15, 1e-9};
      if (name == "loss_curve" && i == 0) tolerance = {tol_.first_loss};
      if (name == "grad_norm_curve") tolerance = {0, tol_.grad_norm};
      compare_json(name, fmt::format("step {}", i + 1), expected[i], (*got)[i], tolerance);
    }
  }

  void compare_steps(const Json& expected) {
    const Json& got = recorded_.values["steps"];
    if (expected.size() != got.size()) {
      fail("steps", fmt::format("ran {} steps, expected {}", got.size(), expected.size()));
    }
    int64_t doubtful_steps = 0;  // since a gap was first too small for rounding to leave it alone
    for (size_t i = 0; i < std::min(expected.size(), got.size()); ++i) {
      const double margin = expected[i].value("router_min_margin", 1.0);
      if (i > 0 && (doubtful_steps > 0 || margin < tol_.noise)) ++doubtful_steps;
      for (const auto& [name, value] : expected[i].items()) {
        const std::string group = "steps." + name, where = fmt::format("step {}", i + 1);
        if (!got[i].contains(name)) {
          fail(group, where + ": the run has no such value");
        } else if (name == "param_grad_norms") {
          compare_grad_norms(where, value, got[i][name], got[i]["grad_norm"].get<double>());
        } else {
          compare_json(group, where, value, got[i][name], step_tolerance(name, i, doubtful_steps));
        }
      }
    }
  }

  Tolerance step_tolerance(std::string_view name, size_t step, int64_t doubtful_steps) const {
    if (name == "loss") return {step == 0 ? tol_.first_loss : tol_.loss};
    if (name == "grad_norm") return {0, tol_.grad_norm};
    if (name == "lr") return {1e-15, 1e-9};
    if (name == "router_min_margin") return {doubtful_steps > 0 ? 10 * tol_.margin : tol_.margin};
    if (name == "param_norms_after") return {1e-6, tol_.parameter_norm};
    const auto doubtful = static_cast<double>(doubtful_steps);
    if (name == "tokens_per_expert") return {doubtful * std::max(2.0, 0.01 * assignments_a_step())};
    if (name == "expert_bias") {
      return {1e-7 + doubtful * 2 * fixture_.trainer.model.options.load_balance_coeff.value_or(0), 1e-6};
    }
    return kExact;
  }

  double assignments_a_step() const {
    const auto* dims = std::get_if<flavor::DeepSeekV3>(&fixture_.trainer.model.architecture.dims);
    const config::Training& training = fixture_.trainer.training;
    return dims == nullptr ? 0
                           : static_cast<double>(training.global_batch_size * training.seq_len * dims->top_k);
  }

  // Small gradients are judged beside the whole gradient: their own size may be little but rounding.
  void compare_grad_norms(const std::string& where, const Json& expected, const Json& got, double total) {
    const Tolerance tolerance = {tol_.grad_norm * 0.01 * total, tol_.grad_norm};
    compare_json("steps.param_grad_norms", where, expected, got, tolerance);
  }

  void compare_tensor(const std::string& name, const at::Tensor& expected) {
    const std::string group = group_of(name);
    const auto found = recorded_.tensors.find(name);
    if (found == recorded_.tensors.end()) {
      fail(group, name + ": the run has no such tensor");
      return;
    }
    at::Tensor got = found->second;
    if (got.numel() != expected.numel()) {
      fail(group, name + ": another shape than expected");
      return;
    }
    got = got.view_as(expected).to(at::kDouble);
    at::Tensor wanted = expected.to(at::kDouble);
    if (group == "router.expert_ids") {
      compare_ids(name, wanted, got);
      return;
    }
    if (group == "router.weights") drop_other_choices(name, &wanted, &got);
    if (wanted.numel() == 0) return;
    const auto worst = (got - wanted).abs().nan_to_num(INFINITY).argmax().item<int64_t>();
    const double largest = wanted.abs().max().item<double>();
    note(group, name, wanted.flatten()[worst].item<double>(), got.flatten()[worst].item<double>(),
         {tensor_tolerance(group, largest)});
  }

  static std::string group_of(std::string_view name) {
    const std::string_view first = name.substr(0, name.find('.'));
    if (first == "router") return "router." + std::string(name.substr(name.rfind('.') + 1));
    return std::string(first);
  }

  double tensor_tolerance(std::string_view group, double largest) const {
    if (group == "logits" || group == "mtp_logits") return tol_.logits;
    if (group == "hidden") return tol_.hidden * std::max(1.0, largest);
    if (group.starts_with("grad")) return tol_.gradient * largest + 1e-9;
    if (group.starts_with("param")) return tol_.parameter;
    return tol_.hidden;  // of the router
  }

  // Rows in which the same experts were chosen, of weights and of what is expected of them.
  void drop_other_choices(const std::string& name, at::Tensor* wanted, at::Tensor* got) const {
    const std::string ids = name.substr(0, name.rfind('.')) + ".expert_ids";
    const auto expected_ids = expected_.tensors.find(ids), own_ids = recorded_.tensors.find(ids);
    if (expected_ids == expected_.tensors.end() || own_ids == recorded_.tensors.end()) return;
    const at::Tensor own = own_ids->second.flatten(0, -2);
    const at::Tensor same = own.eq(expected_ids->second.view_as(own)).all(-1).nonzero().flatten();
    *wanted = wanted->flatten(0, -2).index_select(0, same);
    *got = got->flatten(0, -2).index_select(0, same);
  }

  void compare_ids(const std::string& name, const at::Tensor& wanted, const at::Tensor& got) {
    const std::string block = name.substr(7, name.rfind('.') - 7);
    const double margin = recorded_.values["forward"]["router_min_margin"].value(block, 1.0);
    const auto off = got.ne(wanted).any(-1).sum().item<double>();
    note("router.expert_ids", name + ", tokens with other experts", 0, off,
         {margin < tol_.noise ? 2.0 : 0.0});
  }

  const Fixture& fixture_;
  const Expected& expected_;
  const Recorded& recorded_;
  const Tolerances& tol_;
  std::map<std::string, GroupResult> groups_;
};

}  // namespace

const Tolerances& tolerances_for(const Fixture& fixture, const Expected& expected) {
  if (fixture.trainer.training.mixed_precision_param == "bfloat16") return kBFloat16Tolerances;
  return has_experts(fixture) && !expected.fp32_experts ? kBFloat16ExpertsTolerances : kFloat32Tolerances;
}

std::map<std::string, GroupResult> compare(const Fixture& fixture, const Expected& expected,
                                           const Recorded& recorded) {
  return Comparison(fixture, expected, recorded).run();
}

}  // namespace milepost::train
