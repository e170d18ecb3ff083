#include "train/ops/kernels/adam.h"

#include <cmath>

namespace milepost::train::kernels {
namespace {

using namespace simd;  // NOLINT(google-build-using-namespace): the language of these kernels

MILEPOST_INLINE Floats square_root(Floats values) {
  for (int64_t i = 0; i < kLanes; ++i) values[i] = std::sqrt(values[i]);
  return values;
}

struct State {
  Floats parameter, exp_avg, exp_avg_sq;
};

struct Adam {
  static MILEPOST_INLINE State moved(const AdamStep& step, State at, Floats gradient) {
    gradient += step.coupled_decay * at.parameter;
    at.parameter *= step.kept;
    // A weighted mean, taken from the nearer end, as PyTorch's lerp.
    const Floats change = gradient - at.exp_avg;
    at.exp_avg = step.first_share < 0.5F ? at.exp_avg + step.first_share * change
                                         : gradient + (step.first_share - 1) * change;
    at.exp_avg_sq = at.exp_avg_sq * step.beta2 + step.second_share * gradient * gradient;
    const Floats denominator = square_root(at.exp_avg_sq) / step.second_correction + step.eps;
    at.parameter += -step.step_size * at.exp_avg / denominator;
    return at;
  }
  template <class P, class M>
  static MILEPOST_INLINE void run(const AdamStep& step, P* parameter, const P* gradient, M* exp_avg,
                                  M* exp_avg_sq, int64_t count) {
    const int64_t whole = count / kLanes * kLanes, rest = count - whole;
    for (int64_t i = 0; i < whole; i += kLanes) {
      const State at =
          moved(step, {load(parameter + i), load(exp_avg + i), load(exp_avg_sq + i)}, load(gradient + i));
      store(parameter + i, at.parameter);
      store(exp_avg + i, at.exp_avg);
      store(exp_avg_sq + i, at.exp_avg_sq);
    }
    if (rest == 0) return;
    const State at = moved(step,
                           {load_part(parameter + whole, rest), load_part(exp_avg + whole, rest),
                            load_part(exp_avg_sq + whole, rest)},
                           load_part(gradient + whole, rest));
    store_part(parameter + whole, at.parameter, rest);
    store_part(exp_avg + whole, at.exp_avg, rest);
    store_part(exp_avg_sq + whole, at.exp_avg_sq, rest);
  }
};

}  // namespace

template <class P, class M>
void adam_step(const AdamStep& step, P* parameter, const P* gradient, M* exp_avg, M* exp_avg_sq,
               int64_t count) {
  run_best<Adam>(step, parameter, gradient, exp_avg, exp_avg_sq, count);
}

template void adam_step(const AdamStep&, float*, const float*, float*, float*, int64_t);
template void adam_step(const AdamStep&, float*, const float*, BFloat16*, BFloat16*, int64_t);
template void adam_step(const AdamStep&, BFloat16*, const BFloat16*, BFloat16*, BFloat16*, int64_t);

}  // namespace milepost::train::kernels
