// What the processor can do, asked once; kernels choose among their forms by it. Nothing at all when the
// environment has MILEPOST_PLAIN_KERNELS: results of other processors, and tests of the plain forms.
#pragma once

namespace milepost::train {

bool has_avx2();         // and its fused multiply-add
bool has_avx512();       // AVX-512 F, BW, DQ, VL
bool has_avx512_bf16();  // and its bfloat16 dot products

}  // namespace milepost::train
