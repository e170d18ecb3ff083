#include "train/parallel/collectives.h"

#include <fmt/format.h>

#include <cstring>
#include <numeric>

namespace milepost::train {
namespace {

class Done final : public Pending {
 public:
  void wait() override {}
};

class SingleGroup final : public Group {
 public:
  SingleGroup(std::string name, int64_t rank) : Group(std::move(name), {rank}, 0) {}
  PendingPtr all_gather(const at::Tensor& receive, const at::Tensor& send) override {
    receive.view(-1).copy_(send.reshape(-1));
    return std::make_unique<Done>();
  }
  PendingPtr all_to_all(const at::Tensor& receive, const std::vector<int64_t>& /*receive_sizes*/,
                        const at::Tensor& send, const std::vector<int64_t>& /*send_sizes*/) override {
    receive.copy_(send);
    return std::make_unique<Done>();
  }
  PendingPtr broadcast(const at::Tensor& /*tensor*/, int64_t /*root_index*/) override {
    return std::make_unique<Done>();
  }
  void barrier() override {}
  void set_timeout(std::chrono::milliseconds /*timeout*/) override {}
};

class FakeGroup final : public Group {
 public:
  using Group::Group;
  FakeGroup(std::string name, std::vector<int64_t> ranks, int64_t index)
      : Group(std::move(name), std::move(ranks), index) {}
  PendingPtr all_gather(const at::Tensor& receive, const at::Tensor& send) override {
    receive.view({size(), -1}).copy_(send.reshape({1, -1}).expand({size(), -1}));
    return std::make_unique<Done>();
  }
  PendingPtr all_to_all(const at::Tensor& receive, const std::vector<int64_t>& /*receive_sizes*/,
                        const at::Tensor& /*send*/, const std::vector<int64_t>& /*send_sizes*/) override {
    receive.zero_();
    return std::make_unique<Done>();
  }
  PendingPtr broadcast(const at::Tensor& /*tensor*/, int64_t /*root_index*/) override {
    return std::make_unique<Done>();
  }
  void barrier() override {}
  void set_timeout(std::chrono::milliseconds /*timeout*/) override {}
};

// What every rank sent of this rank's piece, to be added up when all of it is there.
class PendingSum final : public Pending {
 public:
  PendingSum(PendingPtr transfer, at::Tensor pieces, at::Tensor sum)
      : transfer_(std::move(transfer)), pieces_(std::move(pieces)), sum_(std::move(sum)) {}

  void wait() override {
    transfer_->wait();
    const at::NoGradGuard no_grad;
    const bool is_narrow = sum_.scalar_type() == at::kBFloat16 || sum_.scalar_type() == at::kHalf;
    at::Tensor sum = is_narrow ? pieces_.select(0, 0).to(at::kFloat) : sum_;
    if (!is_narrow) sum.copy_(pieces_.select(0, 0));
    for (int64_t rank = 1; rank < pieces_.size(0); ++rank) sum.add_(pieces_.select(0, rank));
    if (is_narrow) sum_.copy_(sum);
    pieces_.reset();
  }

 private:
  PendingPtr transfer_;
  at::Tensor pieces_, sum_;
};

at::Tensor bytes_of(const std::string& text) {
  at::Tensor bytes = at::empty({static_cast<int64_t>(text.size())}, at::kByte);
  if (!text.empty()) std::memcpy(bytes.mutable_data_ptr(), text.data(), text.size());
  return bytes;
}

std::string text_of(const at::Tensor& bytes) {
  return {static_cast<const char*>(bytes.const_data_ptr()), static_cast<size_t>(bytes.numel())};
}

std::vector<int64_t> all_gather_numbers(Group& group, int64_t value) {
  const at::Tensor all = at::empty({group.size()}, at::kLong);
  group.all_gather(all, at::full({1}, value, at::kLong))->wait();
  const int64_t* first = all.const_data_ptr<int64_t>();
  return {first, first + group.size()};
}

}  // namespace

PendingPtr reduce_scatter(Group& group, const at::Tensor& receive, const at::Tensor& send,
                          const at::Tensor& pieces) {
  const int64_t piece = receive.numel();
  const std::vector<int64_t> sizes(static_cast<size_t>(group.size()), piece);
  PendingPtr transfer = group.all_to_all(pieces.view(-1), sizes, send.view(-1), sizes);
  return std::make_unique<PendingSum>(std::move(transfer), pieces.view({group.size(), piece}),
                                      receive.view(-1));
}

PendingPtr reduce_scatter(Group& group, const at::Tensor& receive, const at::Tensor& send) {
  return reduce_scatter(group, receive, send, at::empty_like(send));
}

void all_reduce(Group& group, const at::Tensor& tensor, Reduction reduction) {
  if (group.size() == 1) return;
  const at::NoGradGuard no_grad;
  const at::Tensor flat = tensor.reshape(-1);
  if (reduction == Reduction::kMax || flat.numel() < 64 * group.size()) {
    const at::Tensor all = at::empty({group.size(), flat.numel()}, flat.options());
    group.all_gather(all, flat.contiguous())->wait();
    at::Tensor result;
    if (reduction == Reduction::kMax) {
      result = std::get<0>(all.max(0));
    } else {
      result = all.select(0, 0).clone();
      for (int64_t rank = 1; rank < group.size(); ++rank) result.add_(all.select(0, rank));
    }
    tensor.copy_(result.view_as(tensor));
    return;
  }
  const int64_t piece = (flat.numel() + group.size() - 1) / group.size();
  const at::Tensor padded = at::zeros({group.size() * piece}, flat.options());
  padded.narrow(0, 0, flat.numel()).copy_(flat);
  const at::Tensor own = at::empty({piece}, flat.options());
  reduce_scatter(group, own, padded)->wait();
  group.all_gather(padded, own)->wait();
  tensor.copy_(padded.narrow(0, 0, flat.numel()).view_as(tensor));
}

double all_reduce(Group& group, double value, Reduction reduction) {
  const at::Tensor tensor = at::full({1}, value, at::kDouble);
  all_reduce(group, tensor, reduction);
  return tensor.item<double>();
}

std::vector<std::string> all_gather_strings(Group& group, const std::string& value) {
  const std::vector<int64_t> lengths = all_gather_numbers(group, static_cast<int64_t>(value.size()));
  const int64_t longest = *std::max_element(lengths.begin(), lengths.end());
  if (longest == 0) return std::vector<std::string>(lengths.size());
  const at::Tensor padded = at::zeros({longest}, at::kByte);
  padded.narrow(0, 0, static_cast<int64_t>(value.size())).copy_(bytes_of(value));
  const at::Tensor all = at::empty({group.size(), longest}, at::kByte);
  group.all_gather(all, padded)->wait();
  std::vector<std::string> values;
  for (int64_t rank = 0; rank < group.size(); ++rank) {
    values.push_back(text_of(all.select(0, rank).narrow(0, 0, lengths[static_cast<size_t>(rank)])));
  }
  return values;
}

std::string broadcast_string(Group& group, const std::string& value, int64_t root_index) {
  const at::Tensor length = at::full({1}, static_cast<int64_t>(value.size()), at::kLong);
  group.broadcast(length, root_index)->wait();
  const at::Tensor bytes =
      group.index() == root_index ? bytes_of(value) : at::empty({length.item<int64_t>()}, at::kByte);
  if (bytes.numel() > 0) group.broadcast(bytes, root_index)->wait();
  return text_of(bytes);
}

std::unique_ptr<Group> make_single_group(std::string name, int64_t rank) {
  return std::make_unique<SingleGroup>(std::move(name), rank);
}

std::unique_ptr<Group> make_fake_group(std::string name, std::vector<int64_t> ranks, int64_t index) {
  return std::make_unique<FakeGroup>(std::move(name), std::move(ranks), index);
}

}  // namespace milepost::train
