#include "milepost/data/numpy_random.h"

#include <algorithm>
#include <bit>
#include <numeric>

// 1. The seed's 32-bit words are hashed into a pool of four words, and every word is mixed into every other.
// 2. The pool gives eight 32-bit words: the generator's initial state and its stream, high word first.
// 3. PCG64 steps a 128-bit linear congruential generator, and outputs high XOR low, rotated by the top 6
// bits.
namespace milepost::data {
namespace {

__extension__ typedef unsigned __int128 Uint128;  // GCC and clang have it, ISO C++ does not

constexpr uint32_t kInitA = 0x43b0d7e5, kMultA = 0x931e8875, kInitB = 0x8b51f9dd, kMultB = 0x58f38ded;
constexpr uint32_t kMixLeft = 0xca01f9dd, kMixRight = 0x4973f715;
constexpr int kShift = 16;
constexpr uint64_t kMultiplierHigh = 0x2360ed051fc65da4, kMultiplierLow = 0x4385df649fccf645;

// The hash whose constant changes with each use.
class SeedHash {
 public:
  uint32_t operator()(uint32_t value) {
    value ^= constant_;
    constant_ *= kMultA;
    value *= constant_;
    return value ^ (value >> kShift);
  }

 private:
  uint32_t constant_ = kInitA;
};

uint32_t mix(uint32_t x, uint32_t y) {
  const uint32_t mixed = kMixLeft * x - kMixRight * y;
  return mixed ^ (mixed >> kShift);
}

std::array<uint32_t, 4> entropy_pool(uint64_t seed) {
  const std::array<uint32_t, 4> entropy{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32), 0, 0};
  std::array<uint32_t, 4> pool{};
  SeedHash hash;
  for (size_t i = 0; i < 4; ++i) pool[i] = hash(entropy[i]);
  for (size_t from = 0; from < 4; ++from) {
    for (size_t to = 0; to < 4; ++to) {
      if (from != to) pool[to] = mix(pool[to], hash(pool[from]));
    }
  }
  return pool;
}

std::array<uint64_t, 4> seed_words(uint64_t seed) {
  const std::array<uint32_t, 4> pool = entropy_pool(seed);
  std::array<uint64_t, 4> words{};
  uint32_t constant = kInitB;
  for (size_t i = 0; i < 8; ++i) {
    uint32_t value = pool[i % 4] ^ constant;
    constant *= kMultB;
    value *= constant;
    value ^= value >> kShift;
    words[i / 2] |= static_cast<uint64_t>(value) << (i % 2 * 32);
  }
  return words;
}

Uint128 wide(uint64_t high, uint64_t low) { return static_cast<Uint128>(high) << 64 | low; }
uint64_t high_half(Uint128 v) { return static_cast<uint64_t>(v >> 64); }
uint64_t low_half(Uint128 v) { return static_cast<uint64_t>(v); }

}  // namespace

NumpyGenerator::NumpyGenerator(uint64_t seed) {
  const std::array<uint64_t, 4> words = seed_words(seed);
  const Uint128 increment = wide(words[2], words[3]) << 1 | 1;
  increment_ = {high_half(increment), low_half(increment)};
  step();
  const Uint128 state = wide(state_.high, state_.low) + wide(words[0], words[1]);
  state_ = {high_half(state), low_half(state)};
  step();
}

void NumpyGenerator::step() {
  const Uint128 state = wide(state_.high, state_.low) * wide(kMultiplierHigh, kMultiplierLow) +
                        wide(increment_.high, increment_.low);
  state_ = {high_half(state), low_half(state)};
}

uint64_t NumpyGenerator::next64() {
  step();
  const uint64_t folded = state_.high ^ state_.low;
  const unsigned rotation = static_cast<unsigned>(state_.high >> 58);
  return folded >> rotation | folded << (-rotation & 63);
}

uint32_t NumpyGenerator::next32() {
  if (has_kept_) {
    has_kept_ = false;
    return kept_;
  }
  const uint64_t drawn = next64();
  kept_ = static_cast<uint32_t>(drawn >> 32);
  has_kept_ = true;
  return static_cast<uint32_t>(drawn);
}

uint64_t NumpyGenerator::interval(uint64_t max) {
  if (max == 0) return 0;
  const uint64_t mask = UINT64_MAX >> std::countl_zero(max);
  for (;;) {
    const uint64_t drawn = (max <= UINT32_MAX ? next32() : next64()) & mask;
    if (drawn <= max) return drawn;
  }
}

double NumpyGenerator::uniform() { return static_cast<double>(next64() >> 11) * 0x1p-53; }

std::vector<int64_t> numpy_permutation(uint64_t seed, int64_t n) {
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  NumpyGenerator generator(seed);
  for (size_t i = order.size(); i-- > 1;) std::swap(order[i], order[generator.interval(i)]);
  return order;
}

WeightedChoice::WeightedChoice(uint64_t seed, const std::vector<double>& weights) : generator_(seed) {
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  double sum = 0;
  for (double weight : weights) cumulative_.push_back(sum += weight / total);
  for (double& value : cumulative_) value /= sum;
}

int64_t WeightedChoice::next() {
  const auto found = std::upper_bound(cumulative_.begin(), cumulative_.end(), generator_.uniform());
  return std::min<int64_t>(found - cumulative_.begin(), static_cast<int64_t>(cumulative_.size()) - 1);
}

}  // namespace milepost::data
