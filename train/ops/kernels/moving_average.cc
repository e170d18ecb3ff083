#include "train/ops/kernels/moving_average.h"

namespace milepost::train::kernels {
namespace {

using namespace simd;  // NOLINT(google-build-using-namespace): the language of these kernels

struct MoveAverage {
  static MILEPOST_INLINE Floats moved(float share, Floats values, Floats average) {
    const Floats change = values - average;
    return share < 0.5F ? average + share * change : values + (share - 1) * change;
  }
  template <class T>
  static MILEPOST_INLINE void run(float share, const T* values, T* average, int64_t count) {
    const int64_t whole = count / kLanes * kLanes, rest = count - whole;
    for (int64_t i = 0; i < whole; i += kLanes) {
      store(average + i, moved(share, load(values + i), load(average + i)));
    }
    if (rest == 0) return;
    store_part(average + whole,
               moved(share, load_part(values + whole, rest), load_part(average + whole, rest)), rest);
  }
};

}  // namespace

template <class T>
void move_average(float share, const T* values, T* average, int64_t count) {
  run_best<MoveAverage>(share, values, average, count);
}

template void move_average(float, const float*, float*, int64_t);
template void move_average(float, const BFloat16*, BFloat16*, int64_t);

}  // namespace milepost::train::kernels
