#include "train/parallel/redistribute.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace milepost::train {
namespace {

using Kind = Spread::Kind;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Move {
  PendingPtr transfer;
  std::function<at::Tensor()> finish;
};

int64_t rows_of_largest(int64_t size, int64_t num_ranks) { return (size + num_ranks - 1) / num_ranks; }

at::Tensor rows(const at::Tensor& tensor, int64_t dim, const ShardRows& range) {
  return tensor.narrow(dim, range.begin, range.count);
}

// Pieces of unequal length travel as pieces of the largest one's, filled with zeros.
at::Tensor padded(const at::Tensor& part, int64_t dim, int64_t length) {
  std::vector<int64_t> shape = part.sizes().vec();
  shape[static_cast<size_t>(dim)] = length;
  at::Tensor out = at::zeros(shape, part.options());
  out.narrow(dim, 0, part.size(dim)).copy_(part);
  return out;
}

Move gather(const at::Tensor& local, at::IntArrayRef shape, int64_t dim, Group& group) {
  const int64_t size = shape[static_cast<size_t>(dim)], num_ranks = group.size();
  const at::Tensor send = padded(local, dim, rows_of_largest(size, num_ranks));
  std::vector<int64_t> all_shape = send.sizes().vec();
  all_shape.insert(all_shape.begin(), num_ranks);
  const at::Tensor all = at::empty(all_shape, send.options());
  return {group.all_gather(all, send), [=] {
            variable_list parts;
            for (int64_t rank = 0; rank < num_ranks; ++rank) {
              parts.push_back(all.select(0, rank).narrow(dim, 0, shard_rows(size, num_ranks, rank).count));
            }
            return at::cat(parts, dim);
          }};
}

Move scatter_sum(const at::Tensor& local, int64_t dim, Group& group) {
  const int64_t size = local.size(dim), num_ranks = group.size();
  const int64_t length = rows_of_largest(size, num_ranks);
  variable_list pieces;
  for (int64_t rank = 0; rank < num_ranks; ++rank) {
    pieces.push_back(padded(rows(local, dim, shard_rows(size, num_ranks, rank)), dim, length));
  }
  const at::Tensor send = at::stack(pieces), own = at::empty_like(pieces[0]);
  const int64_t count = shard_rows(size, num_ranks, group.index()).count;
  return {reduce_scatter(group, own, send), [=] { return own.narrow(dim, 0, count).contiguous(); }};
}

Move exchange(const at::Tensor& local, at::IntArrayRef shape, int64_t from, int64_t to, Group& group) {
  const int64_t num_ranks = group.size(), size = shape[static_cast<size_t>(to)];
  const int64_t own_columns = shard_rows(size, num_ranks, group.index()).count;
  variable_list sent;
  std::vector<int64_t> send_sizes, receive_sizes;
  std::vector<std::vector<int64_t>> received_shapes;
  for (int64_t rank = 0; rank < num_ranks; ++rank) {
    sent.push_back(rows(local, to, shard_rows(size, num_ranks, rank)).reshape(-1));
    send_sizes.push_back(sent.back().numel());
    std::vector<int64_t> piece = shape.vec();
    piece[static_cast<size_t>(from)] = shard_rows(shape[static_cast<size_t>(from)], num_ranks, rank).count;
    piece[static_cast<size_t>(to)] = own_columns;
    receive_sizes.push_back(c10::multiply_integers(piece));
    received_shapes.push_back(std::move(piece));
  }
  const at::Tensor send = at::cat(sent);
  int64_t total = 0;
  for (const int64_t count : receive_sizes) total += count;
  const at::Tensor receive = at::empty({total}, send.options());
  return {group.all_to_all(receive, receive_sizes, send, send_sizes), [=] {
            variable_list parts;
            int64_t at = 0;
            for (size_t rank = 0; rank < receive_sizes.size(); ++rank) {
              parts.push_back(receive.narrow(0, at, receive_sizes[rank]).view(received_shapes[rank]));
              at += receive_sizes[rank];
            }
            return at::cat(parts, from);
          }};
}

Move nothing(at::Tensor result) {
  return {nullptr, [result = std::move(result)] { return result; }};
}

Move start(const at::Tensor& local, at::IntArrayRef shape, Spread from, Spread to, Group& group) {
  if (from == to) return nothing(local);
  const int64_t dim = to.kind == Kind::kShard ? to.dim : from.dim;
  const ShardRows own = shard_rows(shape[static_cast<size_t>(dim)], group.size(), group.index());
  switch (from.kind) {
    case Kind::kReplicate:
      if (to.kind == Kind::kShard) return nothing(rows(local, dim, own).contiguous());
      return nothing(group.index() == 0 ? local : at::zeros_like(local));
    case Kind::kShard: {
      if (to.kind == Kind::kShard) return exchange(local, shape, from.dim, to.dim, group);
      if (to.kind == Kind::kReplicate) return gather(local, shape, dim, group);
      const at::Tensor whole = at::zeros(shape, local.options());
      rows(whole, dim, own).copy_(local);
      return nothing(whole);
    }
    case Kind::kPartial: {
      if (to.kind == Kind::kShard) return scatter_sum(local, dim, group);
      const at::Tensor sum = local.clone(at::MemoryFormat::Contiguous);
      all_reduce(group, sum);
      return nothing(sum);
    }
  }
  return nothing(local);
}

void check(const at::Tensor& local, at::IntArrayRef shape, Spread from, Spread to, const Group& group) {
  for (const Spread& spread : {from, to}) {
    if (spread.kind != Kind::kShard || (spread.dim >= 0 && spread.dim < static_cast<int64_t>(shape.size()))) {
      continue;
    }
    throw ValueError(fmt::format("a tensor of {} dimensions has no dimension {} to be cut along",
                                 shape.size(), spread.dim));
  }
  const std::vector<int64_t> want = local_shape(shape, from, group);
  if (local.sizes().equals(want)) return;
  throw ValueError(fmt::format("a rank's part has shape [{}], and should have [{}]",
                               fmt::join(local.sizes(), ", "), fmt::join(want, ", ")));
}

// How the gradient of a tensor lies.
Spread dual(Spread spread) {
  if (spread.kind == Kind::kReplicate) return Spread::partial();
  if (spread.kind == Kind::kPartial) return Spread::replicate();
  return spread;
}

struct Redistribute : torch::autograd::Function<Redistribute> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& local, std::vector<int64_t> shape,
                            Spread from, Spread to, Group* group) {
    context->saved_data["shape"] = shape;
    context->saved_data["from"] = std::vector<int64_t>{static_cast<int64_t>(from.kind), from.dim};
    context->saved_data["to"] = std::vector<int64_t>{static_cast<int64_t>(to.kind), to.dim};
    context->saved_data["group"] = reinterpret_cast<int64_t>(group);
    const at::Tensor result = start_redistribute(local, shape, from, to, *group).wait();
    return result.is_same(local) ? result.alias() : result;
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto spread = [&](const char* key) {
      const std::vector<int64_t> saved = context->saved_data[key].toIntVector();
      return Spread{static_cast<Kind>(saved[0]), saved[1]};
    };
    auto* const group = reinterpret_cast<Group*>(context->saved_data["group"].toInt());
    const std::vector<int64_t> shape = context->saved_data["shape"].toIntVector();
    return {
        start_redistribute(gradients[0].contiguous(), shape, dual(spread("to")), dual(spread("from")), *group)
            .wait(),
        {},
        {},
        {},
        {}};
  }
};

}  // namespace

ShardRows shard_rows(int64_t size, int64_t num_ranks, int64_t index) {
  const int64_t length = rows_of_largest(size, num_ranks), begin = std::min(size, length * index);
  return {begin, std::min(length, size - begin)};
}

std::vector<int64_t> local_shape(at::IntArrayRef shape, Spread spread, const Group& group) {
  std::vector<int64_t> local = shape.vec();
  if (spread.kind != Kind::kShard) return local;
  int64_t& size = local[static_cast<size_t>(spread.dim)];
  size = shard_rows(size, group.size(), group.index()).count;
  return local;
}

at::Tensor Redistribution::wait() {
  if (transfer_ != nullptr) std::exchange(transfer_, nullptr)->wait();
  return finish_();
}

Redistribution start_redistribute(const at::Tensor& local, at::IntArrayRef shape, Spread from, Spread to,
                                  Group& group) {
  check(local, shape, from, to, group);
  const at::NoGradGuard no_grad;
  Move move = start(local.detach(), shape, from, to, group);
  Redistribution result;
  result.transfer_ = std::move(move.transfer);
  result.finish_ = std::move(move.finish);
  return result;
}

at::Tensor redistribute(const at::Tensor& local, at::IntArrayRef shape, Spread from, Spread to,
                        Group& group) {
  return Redistribute::apply(local, shape.vec(), from, to, &group);
}

}  // namespace milepost::train
