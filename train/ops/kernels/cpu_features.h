// What the processor can do, asked once; kernels choose among their forms by it.
#pragma once

namespace milepost::train {

bool has_avx512();       // AVX-512 F, BW, DQ, VL
bool has_avx512_bf16();  // and its bfloat16 dot products

}  // namespace milepost::train
