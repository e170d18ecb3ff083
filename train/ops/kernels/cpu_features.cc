#include "train/ops/kernels/cpu_features.h"

#include <cstdlib>

namespace milepost::train {

#if defined(__x86_64__)
namespace {
bool may_ask() {
  static const bool may = std::getenv("MILEPOST_PLAIN_KERNELS") == nullptr;
  return may;
}
}  // namespace

bool has_avx2() {
  static const bool has = may_ask() && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return has;
}
bool has_avx512() {
  static const bool has = may_ask() && __builtin_cpu_supports("avx512f") &&
                          __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                          __builtin_cpu_supports("avx512vl");
  return has;
}
bool has_avx512_bf16() {
  static const bool has = has_avx512() && __builtin_cpu_supports("avx512bf16");
  return has;
}
#else
bool has_avx2() { return false; }
bool has_avx512() { return false; }
bool has_avx512_bf16() { return false; }
#endif

}  // namespace milepost::train
