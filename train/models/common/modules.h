// The parts that transformers are made of: each holds its parameters and computes with their `compute`
// values, inside Execution::run. Shapes: B sequences, L positions, D model dimension, F hidden dimension, V
// vocabulary.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/models/model.h"
#include "train/models/parameter.h"

namespace milepost::train {

// No bias anywhere in these models.
struct Linear {
  Parameter weight;  // [out, in]
  Linear(const std::string& name, int64_t in, int64_t out, const Init& init);
  at::Tensor operator()(const at::Tensor& x) const;
};

struct Embedding {
  Parameter weight;  // [V, D]
  Embedding(const std::string& name, int64_t vocab_size, int64_t dim, const Init& init);
  at::Tensor operator()(const at::Tensor& tokens_BL) const;
};

struct RmsNorm {
  Parameter weight;
  double eps;
  RmsNorm(const std::string& name, int64_t dim, double norm_eps);
  at::Tensor operator()(const at::Tensor& x) const;
};

// w2(silu(w1 x) * (w3 x)).
struct FeedForward {
  Linear w1, w2, w3;
  // `depth` is the init of w2 and w3.
  FeedForward(const std::string& name, int64_t dim, int64_t hidden_dim, const Init& depth);
  at::Tensor operator()(const at::Tensor& x_BLD) const;
  std::vector<Parameter*> parameters() { return {&w1.weight, &w2.weight, &w3.weight}; }
};

// Starting values that both models share (spec training, section 6).
inline Init projection_init() { return Init::trunc_normal(0.02); }
Init depth_init(int64_t layer);  // 0.02 / sqrt(2 (layer + 1))
Init output_init(int64_t dim);   // dim^-0.5, within three standard deviations

}  // namespace milepost::train
