#include "train/models/remaking.h"

#include <algorithm>
#include <utility>

namespace milepost::train {

struct RemakeScope::Value {
  at::Tensor alias;  // shares the storage, and has no graph
  std::function<at::Tensor()> remake;
};

namespace {

thread_local RemakeScope* current_scope = nullptr;

bool share_storage(const at::Tensor& a, const at::Tensor& b) { return a.storage().is_alias_of(b.storage()); }

void empty_storage(const at::Tensor& tensor) {
  tensor.storage().set_data_ptr(at::DataPtr(nullptr, tensor.device()));
}

void fill_again(const RemakeScope::Value& value) {
  at::Tensor again = value.remake();
  value.alias.storage().set_data_ptr(again.storage().set_data_ptr(at::DataPtr(nullptr, again.device())));
}

class RemakingExecution final : public Execution {
 public:
  explicit RemakingExecution(std::unique_ptr<Execution> inner) : inner_(std::move(inner)) {}

  std::vector<at::Tensor> run(const Block& block, const std::vector<at::Tensor>& inputs,
                              const Forward& forward) override {
    if (!block.is_layer || !at::GradMode::is_enabled()) return inner_->run(block, inputs, forward);
    RemakeScope scope;
    std::vector<at::Tensor> results = inner_->run(block, inputs, forward);
    scope.give_up_for(results);
    return results;
  }

  void finish_backward() override { inner_->finish_backward(); }

 private:
  std::unique_ptr<Execution> inner_;
};

}  // namespace

RemakeScope::RemakeScope() : outer_(std::exchange(current_scope, this)) {}
RemakeScope::~RemakeScope() { current_scope = outer_; }

void can_remake(const at::Tensor& value, std::function<at::Tensor()> remake) {
  if (current_scope == nullptr || !at::GradMode::is_enabled() || !value.requires_grad()) return;
  current_scope->values_.push_back({value.detach(), std::move(remake)});
}

void RemakeScope::give_up_for(const std::vector<at::Tensor>& results) {
  std::vector<Value> given_up;
  // From the last, since what a value is made of may be kept only for that.
  for (; !values_.empty(); values_.pop_back()) {
    Value& value = values_.back();
    const bool is_kept_by_graph = value.alias.storage().use_count() > 1;
    const bool is_result = std::any_of(results.begin(), results.end(), [&value](const at::Tensor& result) {
      return share_storage(result, value.alias);
    });
    if (is_kept_by_graph && !is_result) given_up.push_back(std::move(value));
  }
  if (given_up.empty() || !results[0].requires_grad()) return;
  for (const Value& value : given_up) empty_storage(value.alias);
  const auto left = std::make_shared<std::vector<Value>>(std::move(given_up));
  results[0].register_hook([left](const at::Tensor&) {
    const at::NoGradGuard no_graph;
    for (; !left->empty(); left->pop_back()) fill_again(left->back());
  });
}

std::unique_ptr<Execution> remake_between_products(std::unique_ptr<Execution> execution) {
  return std::make_unique<RemakingExecution>(std::move(execution));
}

}  // namespace milepost::train
