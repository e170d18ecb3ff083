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

// A tensor under the name of a checkpoint: this rank's part of a parameter or moment, or the rows of it that
// `part` names. Looks at the parameter, which must outlive it.
struct SavedTensor {
  std::string name;
  at::Tensor memory;  // contiguous: the box `held` of a tensor of shape `whole`
  const SavedPart* part = nullptr;
  Dims whole;
  Box held;

  // Shape of the saved tensor, over all ranks, and the box of it that this rank holds (maybe empty).
  Dims shape() const;
  Box box() const;
  // Row-major pieces of box() and their bytes in `memory`, which must be on the host.
  struct Piece {
    Box box;
    MutableBytes bytes;
  };
  std::vector<Piece> pieces() const;
};

// A tensor that every rank has.
SavedTensor saved_whole(const std::string& name, const at::Tensor& memory);
// A tensor of a parameter's shape, cut as the parameter is: its values, a moment.
SavedTensor saved_like(const std::string& name, const Parameter& parameter, const at::Tensor& memory);

// What a checkpoint stores of a parameter's values, tied names left out.
std::vector<SavedTensor> saved_tensors(const Parameter& parameter);

}  // namespace milepost::train
