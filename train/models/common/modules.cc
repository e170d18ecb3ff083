#include "train/models/common/modules.h"

#include <cmath>

#include "train/models/remaking.h"
#include "train/ops/linear.h"
#include "train/ops/rms_norm.h"
#include "train/ops/swiglu.h"

namespace milepost::train {
namespace {

Parameter make_parameter(const std::string& name, std::vector<int64_t> shape, const Init& init) {
  Parameter parameter;
  parameter.name = name + ".weight";
  parameter.shape = std::move(shape);
  parameter.init = init;
  return parameter;
}

}  // namespace

Linear::Linear(const std::string& name, int64_t in, int64_t out, const Init& init)
    : weight(make_parameter(name, {out, in}, init)) {}
at::Tensor Linear::operator()(const at::Tensor& x) const { return train::linear(x, weight.compute); }

Embedding::Embedding(const std::string& name, int64_t vocab_size, int64_t dim, const Init& init)
    : weight(make_parameter(name, {vocab_size, dim}, init)) {}
at::Tensor Embedding::operator()(const at::Tensor& tokens_BL) const {
  return at::embedding(weight.compute, tokens_BL);
}

RmsNorm::RmsNorm(const std::string& name, int64_t dim, double norm_eps)
    : weight(make_parameter(name, {dim}, Init::ones())), eps(norm_eps) {}
at::Tensor RmsNorm::operator()(const at::Tensor& x) const {
  const at::Tensor dense = x.contiguous();
  at::Tensor y = rms_norm(dense, weight.compute, eps);
  can_remake(y, [x = dense.detach(), weight = weight.compute.detach(), eps = eps] {
    return rms_norm(x, weight, eps);
  });
  return y;
}

FeedForward::FeedForward(const std::string& name, int64_t dim, int64_t hidden_dim, const Init& depth)
    : w1(name + ".w1", dim, hidden_dim, projection_init()),
      w2(name + ".w2", hidden_dim, dim, depth),
      w3(name + ".w3", dim, hidden_dim, depth) {}
at::Tensor FeedForward::operator()(const at::Tensor& x_BLD) const {
  const at::Tensor gate_BLF = w1(x_BLD), up_BLF = w3(x_BLD);
  const at::Tensor gated_BLF = swiglu(gate_BLF, up_BLF);
  can_remake(gated_BLF, [gate = gate_BLF.detach(), up = up_BLF.detach()] { return swiglu(gate, up); });
  return w2(gated_BLF);
}

Init depth_init(int64_t layer) {
  return Init::trunc_normal(0.02 / std::sqrt(2.0 * (static_cast<double>(layer) + 1)));
}
Init output_init(int64_t dim) {
  const double std = 1 / std::sqrt(static_cast<double>(dim));
  return Init::trunc_normal(std, -3 * std, 3 * std);
}

}  // namespace milepost::train
