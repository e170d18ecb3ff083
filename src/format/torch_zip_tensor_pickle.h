// The pickle of one tensor, as torch.save writes it: recognised without a machine, and written.
#pragma once

#include <cstdint>
#include <string_view>

#include "milepost/base/bytes.h"
#include "milepost/tensor/box.h"
#include "milepost/tensor/dtype.h"

namespace milepost::torch_zip {

struct TensorPickle {
  DType dtype = DType::kFloat32;
  std::string_view storage_key;  // into the pickle's bytes
  int64_t storage_bytes = 0;     // of the whole storage, as claimed
  int64_t storage_offset = 0;    // elements
  Dims sizes, strides;           // elements
};

// Whether `pickle` is exactly one tensor in torch's usual form, with or without memo numbers and no view
// bits, and valid: sizes, strides and offset not negative, the last element inside the storage. What this
// accepts, pickle::read() reads alike; what it does not may still be a tensor. Cost: 0.2 us.
bool match_tensor_pickle(Bytes pickle, TensorPickle* tensor);

// Appends the pickle of a row-major tensor that fills storage "0", byte for byte as torch 2.13 writes it.
// Throws FormatError kUnsupported for a dtype that torch lacks.
void append_tensor_pickle(ByteVector& out, DType dtype, DimsView sizes);

// Elements from the storage's start to just behind the last one that the view touches; 0 without elements; -1
// on overflow. Requires sizes, strides and offset >= 0.
int64_t view_end(int64_t storage_offset, DimsView sizes, DimsView strides);

// Whether the strides are those of dense row-major elements; dimensions of size 1 may have any.
bool is_row_major(DimsView sizes, DimsView strides);

}  // namespace milepost::torch_zip
