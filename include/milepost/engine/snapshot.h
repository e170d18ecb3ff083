// Snapshot: what a rank proposes to save, over memory that stays where it is: a checkpoint to read from and
// the plan of what it holds.
//
//   SnapshotBuilder builder;
//   builder.add_tensor("w", DType::kFloat32, {4, 8}, Box::whole({4, 8}));
//   builder.add_piece({{0, 0}, {4, 8}}, bytes);
//   builder.add_object("step", builder.values().integer(7));
//   Snapshot mine = std::move(builder).finish();       // then plan_global, write_rank (save.h)
//
// Memory is only looked at: it must stay, and stay unchanged, until the snapshot has been written. Threads:
// the builder one; a snapshot any.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "milepost/base/bytes.h"
#include "milepost/engine/checkpoint.h"
#include "milepost/format/pickle.h"
#include "milepost/plan/save_plan.h"

namespace milepost {

struct Snapshot {
  std::shared_ptr<const Checkpoint> checkpoint;  // in memory
  LocalPlan plan;
};

class SnapshotBuilder {
 public:
  // A tensor of which this rank holds `box`, `dtype` in memory and `saved_as` in the checkpoint. Throws
  // ValueError as LocalPlan::add_tensor, FormatError kDuplicate for a name given twice.
  void add_tensor(const std::string& name, DType dtype, DimsView shape, const Box& box, DType saved_as);
  void add_tensor(const std::string& name, DType dtype, DimsView shape, const Box& box) {
    add_tensor(name, dtype, shape, box, dtype);
  }
  // Memory of the tensor added last: `piece`, row-major. All pieces together cover its box. Requires as many
  // bytes as the piece has (assert).
  void add_piece(const Box& piece, Bytes memory);
  // `value` belongs to values().
  void add_object(const std::string& name, const pickle::Value* value);
  pickle::Builder& values() { return values_; }

  Snapshot finish() &&;

 private:
  Catalog catalog_;
  std::vector<std::shared_ptr<const ByteSource>> files_;
  LocalPlan plan_;
  pickle::Builder values_;
  std::vector<const pickle::Value*> objects_;
};

// The names of all proposals in the order in which they were first made, rank by rank: the order in which
// torch lists entries, for Catalog::set_order of a global plan.
std::vector<std::string> order_of_proposals(const std::vector<LocalPlan>& plans);

}  // namespace milepost
