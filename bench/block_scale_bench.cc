// Block-quantised elements: GB/s of one core for each function of block_scale.h, over a matrix in memory and
// over one that stays in the cache, beside the plain kernels and a copy (or a read) of as many bytes.
//
//   block_scale_bench [--rounds N]
//
// Rates count the wide side (bfloat16, float32), by CPU time; the best round, in brackets the median.
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "milepost/base/bytes.h"
#include "milepost/tensor/block_scale.h"
#include "tensor/block_scale_kernels.h"

namespace milepost {
namespace {

constexpr int64_t kColumns = 7168, kBlock = 128;  // DeepSeek-V3's rows
constexpr int64_t kBlocks = kColumns / kBlock;

struct Matrix {
  explicit Matrix(int64_t num_rows)
      : rows(num_rows),
        wide(static_cast<size_t>(rows * kColumns * 4)),
        codes(static_cast<size_t>(rows * kColumns)),
        packed_scales(static_cast<size_t>(kColumns / 32), 120),
        scales(kBlocks, 1.7e-3f),
        amax(kBlocks) {
    std::mt19937_64 random(1);
    // No NaN among the codes; bfloat16 between 2^-9 and 1/4 that quantise to codes of all kinds.
    for (std::byte& code : codes) code = static_cast<std::byte>(random() & 0xf7);
    for (size_t i = 0; i < wide.size(); i += 2) {
      const auto value = static_cast<uint16_t>((random() & 0x807f) | (125 - random() % 8) << 7);
      std::memcpy(&wide[i], &value, sizeof value);
    }
  }

  int64_t rows;
  ByteVector wide, codes;
  std::vector<uint8_t> packed_scales;
  std::vector<float> scales, amax;
};

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

using RowWork = std::function<void(Matrix&, int64_t row)>;

struct Case {
  std::string name;
  int64_t wide_size;  // bytes an element of the wide side
  RowWork work;
};

RowWork dequantise(DType to, CpuLevel level) {
  const int64_t row_bytes = kColumns * dtype_size(to);
  if (level == cpu_level()) {
    return [=](Matrix& m, int64_t row) {
      dequantise_row(m.wide.data() + row * row_bytes, to, m.codes.data() + row * kColumns,
                     DType::kFloat8E4M3FN, m.scales.data(), kBlock, 0, kColumns);
    };
  }
  return [=](Matrix& m, int64_t row) {
    const DequantiseRun run = dequantise_run(DType::kFloat8E4M3FN, to, level);
    for (int64_t i = 0; i < kColumns; i += kBlock) {
      run(m.wide.data() + row * row_bytes + i * dtype_size(to), m.codes.data() + row * kColumns + i, 1.7e-3f,
          kBlock);
    }
  };
}

RowWork quantise(DType from, CpuLevel level) {
  const int64_t row_bytes = kColumns * dtype_size(from);
  if (level == cpu_level()) {
    return [=](Matrix& m, int64_t row) {
      quantise_row(m.codes.data() + row * kColumns, m.wide.data() + row * row_bytes, from, m.scales.data(),
                   kBlock, 0, kColumns);
    };
  }
  return [=](Matrix& m, int64_t row) {
    const QuantiseRun run = quantise_run(from, level);
    for (int64_t i = 0; i < kColumns; i += kBlock) {
      run(m.codes.data() + row * kColumns + i, m.wide.data() + row * row_bytes + i * dtype_size(from),
          1.7e-3f, kBlock);
    }
  };
}

RowWork amax_of(DType from) {
  return [=](Matrix& m, int64_t row) {
    accumulate_amax(m.amax.data(), m.wide.data() + row * kColumns * dtype_size(from), from, kBlock, 0,
                    kColumns);
  };
}

// Reads row_bytes and keeps what it can of them: the least that a reader does.
void read_row(Matrix& m, int64_t row, int64_t row_bytes) {
  constexpr int64_t kWords = 16;
  const std::byte* const src = m.wide.data() + row * row_bytes;
  uint64_t kept[kWords] = {};
  for (int64_t i = 0; i < row_bytes; i += static_cast<int64_t>(sizeof kept)) {
    uint64_t words[kWords];
    std::memcpy(words, src + i, sizeof words);
    for (int64_t k = 0; k < kWords; ++k) kept[k] |= words[k];
  }
  for (uint64_t word : kept) m.amax[0] += word == 1 ? 1.0f : 0.0f;
}

// Moves as many bytes as a conversion between float8 and elements of that size: half of them read.
void copy_row(Matrix& m, int64_t row, int64_t wide_size) {
  const int64_t bytes = kColumns * (1 + wide_size) / 2;
  const int64_t half = static_cast<int64_t>(m.wide.size()) / 2;
  std::memcpy(m.wide.data() + half + row * bytes % (half - bytes),
              m.wide.data() + row * bytes % (half - bytes), static_cast<size_t>(bytes));
}

std::vector<Case> cases() {
  const auto bf16 = DType::kBFloat16, f32 = DType::kFloat32, f16 = DType::kFloat16;
  const CpuLevel best = cpu_level(), plain = CpuLevel::kPortable;
  return {
      {"amax of bfloat16", 2, amax_of(bf16)},
      {"amax of float32", 4, amax_of(f32)},
      {"limit: read", 4, [](Matrix& m, int64_t row) { read_row(m, row, kColumns * 4); }},
      {"e4m3fn to bfloat16", 2, dequantise(bf16, best)},
      {"e4m3fn to bfloat16, plain", 2, dequantise(bf16, plain)},
      {"bfloat16 to e4m3fn", 2, quantise(bf16, best)},
      {"bfloat16 to e4m3fn, plain", 2, quantise(bf16, plain)},
      {"limit: copy", 2, [](Matrix& m, int64_t row) { copy_row(m, row, 2); }},
      {"e4m3fn to float16", 2, dequantise(f16, best)},
      {"e4m3fn to float32", 4, dequantise(f32, best)},
      {"e4m3fn to float32, plain", 4, dequantise(f32, plain)},
      {"float32 to e4m3fn", 4, quantise(f32, best)},
      {"limit: copy", 4, [](Matrix& m, int64_t row) { copy_row(m, row, 4); }},
      {"mxfp4 to bfloat16", 2,
       [](Matrix& m, int64_t row) {
         dequantise_mxfp4_row(m.wide.data() + row * kColumns * 2, DType::kBFloat16,
                              reinterpret_cast<const uint8_t*>(m.codes.data()) + row * kColumns / 2,
                              m.packed_scales.data(), 32, 0, kColumns);
       }},
  };
}

std::string rate(const Case& c, Matrix& matrix, int rounds) {
  const int64_t passes = std::max<int64_t>(1, 2000 / matrix.rows);
  std::vector<double> seconds;
  for (int round = 0; round <= rounds; ++round) {
    const double start = cpu_seconds();
    for (int64_t pass = 0; pass < passes; ++pass) {
      for (int64_t row = 0; row < matrix.rows; ++row) c.work(matrix, row);
    }
    if (round > 0) seconds.push_back(cpu_seconds() - start);  // the first one only warms up
  }
  std::sort(seconds.begin(), seconds.end());
  const double gigabytes = static_cast<double>(passes * matrix.rows * kColumns * c.wide_size) * 1e-9;
  return fmt::format("{:6.2f} ({:.2f})", gigabytes / seconds.front(),
                     gigabytes / seconds[seconds.size() / 2]);
}

void run(int rounds) {
  Matrix small(16), large(12288);
  fmt::print("| GB/s of the wide side | {} MiB of codes | {} KiB of codes |\n|---|---|---|\n",
             large.codes.size() >> 20, small.codes.size() >> 10);
  for (const Case& c : cases()) {
    fmt::print("| {} | {} | {} |\n", c.name, rate(c, large, rounds), rate(c, small, rounds));
  }
}

}  // namespace
}  // namespace milepost

int main(int argc, char** argv) {
  int rounds = 5;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::string_view(argv[i]) == "--rounds") rounds = std::max(1, std::atoi(argv[i + 1]));
  }
  milepost::run(rounds);
}
