#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/element_values.h"
#include "milepost/engine/scan.h"

namespace milepost {
namespace {

// Mean and sum of squared deviations of what has been seen; merging two is exact up to rounding.
struct Moments {
  int64_t count = 0;
  double mean = 0, deviations = 0;

  void merge(const Moments& other) {
    if (other.count == 0) return;
    const auto total = static_cast<double>(count + other.count);
    const double delta = other.mean - mean;
    const double weight = static_cast<double>(other.count) / total;
    deviations += other.deviations + delta * delta * weight * static_cast<double>(count);
    mean += delta * weight;
    count += other.count;
  }
};

struct Accumulator {
  TensorStats stats;
  Moments moments;
  double min = std::numeric_limits<double>::infinity(), max = -std::numeric_limits<double>::infinity();

  // Changes `values`: finite ones are moved to the front.
  void add(double* values, int64_t count) {
    stats.count += count;
    int64_t finite = 0;
    double sum = 0;
    for (int64_t i = 0; i < count; ++i) {
      const double value = values[i];
      if (std::isnan(value)) {
        ++stats.nan;
      } else if (std::isinf(value)) {
        ++stats.inf;
      } else {
        values[finite++] = value;
        sum += value;
        stats.zeros += value == 0;
        min = std::min(min, value);
        max = std::max(max, value);
      }
    }
    if (finite == 0) return;
    Moments block{finite, sum / static_cast<double>(finite), 0};
    for (int64_t i = 0; i < finite; ++i) {
      block.deviations += (values[i] - block.mean) * (values[i] - block.mean);
    }
    moments.merge(block);
  }

  void add(Bytes bytes, DType dtype) {
    double block[kBlockElements * 2];
    const int64_t size = dtype_size(dtype), count = static_cast<int64_t>(bytes.size()) / size;
    for (int64_t begin = 0; begin < count; begin += kBlockElements) {
      const int64_t n = std::min(kBlockElements, count - begin);
      elements_as_doubles(bytes.data() + begin * size, dtype, n, block);
      if (is_complex(dtype)) {
        for (int64_t i = 0; i < n; ++i) block[i] = std::hypot(block[2 * i], block[2 * i + 1]);
      }
      add(block, n);
    }
  }

  TensorStats finish() {
    if (moments.count > 0) {
      stats.min = min;
      stats.max = max;
      stats.mean = moments.mean;
      stats.std = std::sqrt(moments.deviations / static_cast<double>(moments.count));
    }
    return stats;
  }
};

}  // namespace

std::vector<TensorStats> tensor_stats(const std::shared_ptr<const Checkpoint>& checkpoint,
                                      const std::vector<int64_t>& tensors, const ScanOptions& options) {
  const std::vector<Catalog::Tensor>& table = checkpoint->catalog().tensors();
  const auto info = [&](size_t i) -> const Catalog::Tensor& {
    return table[static_cast<size_t>(tensors[i])];
  };
  std::vector<Accumulator> accumulators(tensors.size());
  std::vector<int64_t> with_values;
  std::vector<size_t> places;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (has_element_values(info(i).dtype)) {
      with_values.push_back(tensors[i]);
      places.push_back(i);
    } else {
      accumulators[i].stats.has_values = false;
      accumulators[i].stats.count = num_elements(info(i).shape);
    }
  }
  scan_tensors(checkpoint, with_values, options, [&](int64_t i, int64_t, Bytes bytes, int) {
    const size_t place = places[static_cast<size_t>(i)];
    accumulators[place].add(bytes, info(place).dtype);
  });
  std::vector<TensorStats> stats;
  stats.reserve(tensors.size());
  for (Accumulator& accumulator : accumulators) stats.push_back(accumulator.finish());
  return stats;
}

}  // namespace milepost
