// Reads the second half of a tensor's rows as float32, whatever the checkpoint's format, layout and dtype.
#include <cstdio>
#include <vector>

#include "milepost/base/error.h"
#include "milepost/engine/load.h"

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: load_rows CHECKPOINT TENSOR\n");
    return 2;
  }
  try {
    const auto checkpoint = milepost::Checkpoint::open(argv[1]);
    const auto index = checkpoint->catalog().find_tensor(argv[2]);
    if (!index) throw milepost::MissingKeyError(std::string("there is no tensor ") + argv[2]);
    const milepost::Catalog::Tensor& tensor = checkpoint->catalog().tensors()[static_cast<size_t>(*index)];
    if (tensor.shape.empty()) throw milepost::ValueError("a scalar has no rows");

    milepost::Box rows = milepost::Box::whole(tensor.shape);
    rows.offsets[0] = tensor.shape[0] / 2;
    rows.sizes[0] -= rows.offsets[0];
    std::vector<float> memory(static_cast<size_t>(rows.num_elements()));
    milepost::load(checkpoint, {{tensor.name,
                                 milepost::DType::kFloat32,
                                 tensor.shape,
                                 rows,
                                 reinterpret_cast<std::byte*>(memory.data()),
                                 {}}});
    std::printf("%zu elements, the first is %g\n", memory.size(), memory.empty() ? 0.0 : double{memory[0]});
  } catch (const milepost::Error& error) {
    std::fprintf(stderr, "load_rows: %s\n", error.what());
    return 1;
  }
  return 0;
}
