// Tensors of a job as a checkpoint knows them: name, shape, dtype, and where their elements lie.
#pragma once

#include <string>
#include <vector>

#include "milepost/base/bytes.h"
#include "milepost/tensor/box.h"
#include "milepost/tensor/dtype.h"
#include "train/models/parameter.h"

namespace milepost::train {

// Throws ValueError for a dtype that checkpoints have not.
DType dtype_of(const at::Tensor& tensor);

// A tensor under the name of a checkpoint: all of `memory`, or the rows of it that `part` names. Looks at the
// parameter, which must outlive it.
struct SavedTensor {
  std::string name;
  at::Tensor memory;  // contiguous
  const SavedPart* part = nullptr;

  Dims shape() const;
  // Row-major pieces of the tensor and their bytes in `memory`, which must be on the host.
  struct Piece {
    Box box;
    MutableBytes bytes;
  };
  std::vector<Piece> pieces() const;
};

// What a checkpoint stores of a parameter's values, tied names left out.
std::vector<SavedTensor> saved_tensors(const Parameter& parameter);

}  // namespace milepost::train
