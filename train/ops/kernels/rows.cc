#include "train/ops/kernels/rows.h"

namespace milepost::train::kernels {
namespace {

using namespace simd;  // NOLINT(google-build-using-namespace): the language of these kernels

struct Cast {
  template <class From, class To>
  static MILEPOST_INLINE void run(const From* from, To* to, int64_t count) {
    const int64_t whole = count / kLanes * kLanes, rest = count - whole;
    for (int64_t i = 0; i < whole; i += kLanes) store(to + i, load(from + i));
    if (rest > 0) store_part(to + whole, load_part(from + whole, rest), rest);
  }
};

struct Scale {
  template <class From, class To>
  static MILEPOST_INLINE void run(const From* from, float factor, To* to, int64_t count) {
    const int64_t whole = count / kLanes * kLanes, rest = count - whole;
    for (int64_t i = 0; i < whole; i += kLanes) store(to + i, rounded_as(from, load(from + i) * factor));
    if (rest > 0) store_part(to + whole, rounded_as(from, load_part(from + whole, rest) * factor), rest);
  }
};

struct AddScaled {
  template <class From, class Kept>
  static MILEPOST_INLINE void run(const From* from, float factor, const Kept* kept, float* sum,
                                  int64_t count) {
    const int64_t whole = count / kLanes * kLanes, rest = count - whole;
    for (int64_t i = 0; i < whole; i += kLanes) {
      store(sum + i, load(sum + i) + rounded_as(kept, load(from + i) * factor));
    }
    if (rest == 0) return;
    const Floats last = rounded_as(kept, load_part(from + whole, rest) * factor);
    store_part(sum + whole, load_part(sum + whole, rest) + last, rest);
  }
};

struct Add {
  template <class To>
  static MILEPOST_INLINE void run(const float* a, const float* b, To* to, int64_t count) {
    const int64_t whole = count / kLanes * kLanes, rest = count - whole;
    for (int64_t i = 0; i < whole; i += kLanes) {
      store(to + i, rounded_as(to, load(a + i)) + rounded_as(to, load(b + i)));
    }
    if (rest == 0) return;
    store_part(to + whole,
               rounded_as(to, load_part(a + whole, rest)) + rounded_as(to, load_part(b + whole, rest)), rest);
  }
};

struct Dot {
  template <class A, class B>
  static MILEPOST_INLINE void run(const A* a, const B* b, int64_t count, float* result) {
    const int64_t whole = count / kLanes * kLanes, rest = count - whole;
    Floats products = all(0);
    for (int64_t i = 0; i < whole; i += kLanes) products += load(a + i) * load(b + i);
    if (rest > 0) products += load_part(a + whole, rest) * load_part(b + whole, rest);
    *result = sum(products);
  }
};

}  // namespace

template <class From, class To>
void cast_row(const From* from, To* to, int64_t count) {
  run_best<Cast>(from, to, count);
}
template <class From, class To>
void scale_row(const From* from, float factor, To* to, int64_t count) {
  run_best<Scale>(from, factor, to, count);
}
template <class From, class Kept>
void add_scaled_row(const From* from, float factor, const Kept* kept_as, float* sum, int64_t count) {
  run_best<AddScaled>(from, factor, kept_as, sum, count);
}
template <class To>
void add_rows(const float* a, const float* b, To* to, int64_t count) {
  run_best<Add>(a, b, to, count);
}
template <class A, class B>
float dot_rows(const A* a, const B* b, int64_t count) {
  float result = 0;
  run_best<Dot>(a, b, count, &result);
  return result;
}
template <class T>
float sum_of_squares(const T* values, int64_t count) {
  return dot_rows(values, values, count);
}

template void cast_row(const float*, float*, int64_t);
template void cast_row(const float*, BFloat16*, int64_t);
template void cast_row(const BFloat16*, float*, int64_t);
template void cast_row(const BFloat16*, BFloat16*, int64_t);
template void scale_row(const float*, float, float*, int64_t);
template void scale_row(const float*, float, BFloat16*, int64_t);
template void scale_row(const BFloat16*, float, BFloat16*, int64_t);
template void add_scaled_row(const float*, float, const float*, float*, int64_t);
template void add_scaled_row(const BFloat16*, float, const float*, float*, int64_t);
template void add_scaled_row(const BFloat16*, float, const BFloat16*, float*, int64_t);
template void add_rows(const float*, const float*, float*, int64_t);
template void add_rows(const float*, const float*, BFloat16*, int64_t);
template float dot_rows(const float*, const float*, int64_t);
template float dot_rows(const float*, const BFloat16*, int64_t);
template float dot_rows(const BFloat16*, const BFloat16*, int64_t);
template float sum_of_squares(const float*, int64_t);
template float sum_of_squares(const BFloat16*, int64_t);

}  // namespace milepost::train::kernels
