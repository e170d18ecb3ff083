#include "milepost/catalog/key_map.h"

#include <utility>

namespace milepost {

void KeyMap::add(std::string name, DType dtype, DimsView shape, std::vector<TensorPart> made_of) {
  target.add_tensor(std::move(name), dtype, shape);
  const Box whole = Box::whole(shape);
  target.add_chunk(whole.offsets, whole.sizes);
  parts.push_back(std::move(made_of));
}

TensorPart whole_part(int64_t source, DimsView shape) {
  TensorPart part;
  part.source = source;
  part.num_rows = num_rows(shape);
  return part;
}

}  // namespace milepost
