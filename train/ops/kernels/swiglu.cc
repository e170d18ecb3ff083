#include "train/ops/kernels/swiglu.h"

namespace milepost::train::kernels {
namespace {

using namespace simd;  // NOLINT(google-build-using-namespace): the language of these kernels

struct Forward {
  template <class T>
  static MILEPOST_INLINE Floats value(const T* type, Floats gate, Floats up) {
    return rounded_as(type, gate * sigmoid(gate)) * up;
  }
  template <class T>
  static MILEPOST_INLINE void run(const T* gate, const T* up, T* out, int64_t count) {
    const int64_t whole = count / kLanes * kLanes, rest = count - whole;
    for (int64_t i = 0; i < whole; i += kLanes) store(out + i, value(gate, load(gate + i), load(up + i)));
    if (rest == 0) return;
    store_part(out + whole, value(gate, load_part(gate + whole, rest), load_part(up + whole, rest)), rest);
  }
};

struct Backward {
  struct Gradients {
    Floats gate, up, hidden;
  };
  template <class T>
  static MILEPOST_INLINE Gradients values(const T* type, Floats dout, Floats gate, Floats up) {
    const Floats share = sigmoid(gate), silu = rounded_as(type, gate * share);
    const Floats slope = share * (1.0F + gate * (1.0F - share));
    return {rounded_as(type, dout * up) * slope, dout * silu, silu * up};
  }
  template <class T>
  static MILEPOST_INLINE void run(const T* dout, const T* gate, const T* up, T* dgate, T* dup, T* hidden,
                                  int64_t count) {
    const int64_t whole = count / kLanes * kLanes, rest = count - whole;
    for (int64_t i = 0; i < whole; i += kLanes) {
      const Gradients at = values(gate, load(dout + i), load(gate + i), load(up + i));
      store(dgate + i, at.gate);
      store(dup + i, at.up);
      if (hidden) store(hidden + i, at.hidden);
    }
    if (rest == 0) return;
    const Gradients last = values(gate, load_part(dout + whole, rest), load_part(gate + whole, rest),
                                  load_part(up + whole, rest));
    store_part(dgate + whole, last.gate, rest);
    store_part(dup + whole, last.up, rest);
    if (hidden) store_part(hidden + whole, last.hidden, rest);
  }
};

}  // namespace

template <class T>
void swiglu_forward(const T* gate, const T* up, T* out, int64_t count) {
  run_best<Forward>(gate, up, out, count);
}
template <class T>
void swiglu_backward(const T* dout, const T* gate, const T* up, T* dgate, T* dup, T* hidden, int64_t count) {
  run_best<Backward>(dout, gate, up, dgate, dup, hidden, count);
}

template void swiglu_forward(const float*, const float*, float*, int64_t);
template void swiglu_forward(const BFloat16*, const BFloat16*, BFloat16*, int64_t);
template void swiglu_backward(const float*, const float*, const float*, float*, float*, float*, int64_t);
template void swiglu_backward(const BFloat16*, const BFloat16*, const BFloat16*, BFloat16*, BFloat16*,
                              BFloat16*, int64_t);

}  // namespace milepost::train::kernels
