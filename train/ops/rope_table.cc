#include <cmath>
#include <numbers>

#include "train/ops/rope.h"

namespace milepost::train {
namespace {

// theta^(-2i / dim), i = 0 .. dim / 2.
at::Tensor plain_frequencies(double theta, int64_t dim) {
  const at::Tensor exponents = at::arange(0, dim, 2, at::kLong).narrow(0, 0, dim / 2).to(at::kFloat).div(dim);
  return at::pow(at::Scalar(theta), exponents).reciprocal();
}

// Long waves turn `factor` times slower, short ones as they did, those between in proportion (Llama 3.1).
at::Tensor llama_frequencies(const flavor::Rope& rope, const at::Tensor& plain) {
  const double original = static_cast<double>(rope.original_max_seq_len);
  const at::Tensor wavelength = plain.reciprocal().mul(2 * std::numbers::pi);
  const at::Tensor is_long = wavelength.gt(original / rope.low_freq_factor);
  const at::Tensor is_short = wavelength.lt(original / rope.high_freq_factor);
  const at::Tensor stretched = at::where(is_long, plain.div(rope.factor), plain);
  const at::Tensor share = wavelength.reciprocal()
                               .mul(original)
                               .sub(rope.low_freq_factor)
                               .div(rope.high_freq_factor - rope.low_freq_factor);
  const at::Tensor between = at::rsub(share, 1).mul(stretched).div(rope.factor).add(share.mul(stretched));
  return at::where(is_short.logical_or(is_long), stretched, between);
}

// The pair whose wave turns `rotations` times within the original length.
double yarn_pair(const flavor::Rope& rope, int64_t dim, double rotations) {
  const double original = static_cast<double>(rope.original_max_seq_len);
  return static_cast<double>(dim) * std::log(original / (rotations * 2 * std::numbers::pi)) /
         (2 * std::log(rope.theta));
}

at::Tensor yarn_frequencies(const flavor::Rope& rope, const at::Tensor& plain, int64_t dim) {
  const double low = std::max(std::floor(yarn_pair(rope, dim, rope.beta_fast)), 0.0);
  double high = std::min(std::ceil(yarn_pair(rope, dim, rope.beta_slow)), static_cast<double>(dim - 1));
  if (low == high) high += 0.001;
  const at::Tensor ramp = at::arange(dim / 2, at::kFloat).sub(low).div(high - low).clamp(0, 1);
  return plain.div(rope.factor).mul(ramp).add(plain.mul(at::rsub(ramp, 1)));
}

at::Tensor frequencies(const flavor::Rope& rope, int64_t dim) {
  at::Tensor plain = plain_frequencies(rope.theta, dim);
  if (rope.scaling == flavor::Rope::Scaling::kLlama) return llama_frequencies(rope, plain);
  if (rope.scaling == flavor::Rope::Scaling::kYarn && rope.factor > 1) {
    return yarn_frequencies(rope, plain, dim);
  }
  return plain;
}

}  // namespace

RopeTable make_rope_table(const flavor::Rope& rope, int64_t dim, int64_t length) {
  const at::NoGradGuard no_grad;
  const at::Tensor angles = at::outer(at::arange(length, at::kLong), frequencies(rope, dim)).to(at::kFloat);
  const at::Tensor turn = at::view_as_real(at::polar(at::ones_like(angles), angles));
  return {dim, length, turn.select(-1, 0).contiguous(), turn.select(-1, 1).contiguous()};
}

}  // namespace milepost::train
