#include "train/models/parameter.h"

namespace milepost::train {

Box local_box(const Parameter& parameter) {
  if (parameter.mesh.names.empty()) return Box::whole(Dims(parameter.shape.begin(), parameter.shape.end()));
  return milepost::local_box(Dims(parameter.shape.begin(), parameter.shape.end()), parameter.mesh,
                             parameter.placements, parameter.mesh.coordinate(parameter.rank));
}

int sharded_dimension(const Parameter& parameter) {
  for (const Placement& placement : parameter.placements) {
    if (placement.kind != Placement::Kind::kReplicate) return placement.dim;
  }
  return 0;
}

at::Tensor part_view(const at::Tensor& tensor, const SavedPart& part) {
  return tensor.unflatten(0, {-1, part.period_rows}).narrow(1, part.first_row, part.num_rows);
}

}  // namespace milepost::train
