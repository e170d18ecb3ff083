// NumPy's default generator (`numpy.random.default_rng(seed)`), as far as data orders need it: numbers equal
// NumPy's bit for bit, so that a reshuffled epoch here is the epoch that TorchTitan reads.
//
// Source: PCG64 (setseq, XSL-RR output, 128 bits of state) seeded through SeedSequence; a shuffle draws bits
// and rejects what is too large, 32 bits at a time where that is enough. NumPy promises this stream for
// `default_rng` only within a version of the algorithm; it has not changed since 1.17.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace milepost::data {

// Threads: one. Copies are independent streams with the same future.
class NumpyGenerator {
 public:
  explicit NumpyGenerator(uint64_t seed);

  uint64_t next64();
  // Half of a 64-bit draw; the other half is kept for the next call, as NumPy does.
  uint32_t next32();
  // Uniform in [0, max], both ends included: what shuffling draws. Cost: less than two draws on average.
  uint64_t interval(uint64_t max);
  // Uniform in [0, 1), 53 bits: `Generator.random()`.
  double uniform();

 private:
  struct Wide {  // an unsigned number of 128 bits
    uint64_t high, low;
  };
  void step();

  Wide state_{}, increment_{};
  uint32_t kept_ = 0;
  bool has_kept_ = false;
};

// `default_rng(seed).permutation(n)`, n >= 0. Cost: 8 bytes and about 10 ns a document (memory-bound above a
// few million).
std::vector<int64_t> numpy_permutation(uint64_t seed, int64_t n);

// Draws from `default_rng(seed).choice(len(weights), p=weights / sum)` one after another, without end.
// Requires weights > 0.
class WeightedChoice {
 public:
  WeightedChoice(uint64_t seed, const std::vector<double>& weights);
  int64_t next();

 private:
  NumpyGenerator generator_;
  std::vector<double> cumulative_;
};

}  // namespace milepost::data
