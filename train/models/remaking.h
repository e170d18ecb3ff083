// Selective recomputation: values between matrix products that cost little to make (norms, gated activations,
// casts) are given up when a layer's forward pass ends, and made again when its backward pass begins.
//
// A value is given up by emptying its storage, whoever keeps it for the backward pass: operations need to
// know nothing of it, and results are the same to the bit, since the same operation makes the value again
// from what is kept anyway. Cost: these operations a second time, about 1 % of a step.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "train/models/model.h"

namespace milepost::train {

// Says that `remake`, called without a graph, gives the bits of `value` again, whose storage is its own. What
// `remake` holds should be what the operation keeps for its own backward pass. Does nothing where nobody
// asks.
void can_remake(const at::Tensor& value, std::function<at::Tensor()> remake);

// Collects what the forward passes on this thread can remake, for the life of this object; the innermost one
// counts.
class RemakeScope {
 public:
  RemakeScope();
  ~RemakeScope();
  RemakeScope(const RemakeScope&) = delete;
  RemakeScope& operator=(const RemakeScope&) = delete;

  // Empties what the graph of `results` keeps and can be made again, other than the results themselves, until
  // a gradient reaches the first of them.
  void give_up_for(const std::vector<at::Tensor>& results);

  struct Value;

 private:
  std::vector<Value> values_;
  RemakeScope* outer_;
  friend void can_remake(const at::Tensor& value, std::function<at::Tensor()> remake);
};

// The same execution, whose layers give up what can be made again.
std::unique_ptr<Execution> remake_between_products(std::unique_ptr<Execution> execution);

}  // namespace milepost::train
