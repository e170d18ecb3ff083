#include "train/models/sharded_weights.h"

#include <algorithm>
#include <chrono>

namespace milepost::train {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// How one parameter lies in the buffer that a rank contributes: its local part, padded along the sharded
// dimension to the size of the largest part, so that all ranks' buffers are alike.
struct Piece {
  Parameter* parameter = nullptr;
  int64_t dim = 0;                // sharded dimension
  std::vector<int64_t> padded;    // shape of the padded part
  int64_t offset = 0, numel = 0;  // in the buffer, in elements
};

std::vector<Piece> lay_out(const Block& block, int64_t num_shards) {
  std::vector<Piece> pieces;
  int64_t offset = 0;
  for (Parameter* parameter : block.parameters) {
    if (!parameter->trainable) continue;
    Piece piece;
    piece.parameter = parameter;
    piece.dim = sharded_dimension(*parameter);
    piece.padded = parameter->shape;
    int64_t& rows = piece.padded[static_cast<size_t>(piece.dim)];
    rows = (rows + num_shards - 1) / num_shards;
    piece.numel = c10::multiply_integers(piece.padded);
    piece.offset = offset;
    offset += piece.numel;
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

// The rows of `whole` (along the sharded dimension) that shard `index` holds, and the same of its padded
// part.
struct Rows {
  at::Tensor of_whole, of_part;
};
Rows rows_of(const Piece& piece, const at::Tensor& whole, const at::Tensor& buffer, int64_t index) {
  const int64_t chunk = piece.padded[static_cast<size_t>(piece.dim)], size = whole.size(piece.dim);
  const int64_t begin = std::min(index * chunk, size), count = std::min(chunk, size - begin);
  const at::Tensor part = buffer.narrow(0, piece.offset, piece.numel).view(piece.padded);
  return {whole.narrow(piece.dim, begin, count), part.narrow(piece.dim, 0, count)};
}

at::Tensor local_rows(const Piece& piece, const at::Tensor& buffer) {
  const at::Tensor part = buffer.narrow(0, piece.offset, piece.numel).view(piece.padded);
  return part.narrow(piece.dim, 0, piece.parameter->local.size(piece.dim));
}

// Where each whole parameter begins in the memory of its block's, in elements, and how many there are. Each
// begins at a cache line.
std::vector<int64_t> whole_offsets(const std::vector<Piece>& pieces) {
  constexpr int64_t kAlignment = 64;
  std::vector<int64_t> offsets = {0};
  for (const Piece& piece : pieces) {
    const int64_t numel = c10::multiply_integers(piece.parameter->shape);
    offsets.push_back(offsets.back() + (numel + kAlignment - 1) / kAlignment * kAlignment);
  }
  return offsets;
}

class WaitTimer {
 public:
  explicit WaitTimer(double& total) : total_(total) {}
  ~WaitTimer() { total_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }
  WaitTimer(const WaitTimer&) = delete;
  WaitTimer& operator=(const WaitTimer&) = delete;

 private:
  double& total_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace

struct ShardedWeights::Sharded {
  const Block* block = nullptr;
  size_t position = 0;  // in sharded_
  std::vector<Piece> pieces;
  int64_t buffer_size = 0;
  at::TensorOptions options(at::ScalarType dtype) const {
    return pieces[0].parameter->local.options().requires_grad(false).dtype(dtype);
  }
  at::Tensor send, receive;  // while a gather is under way
  PendingPtr gather;
  variable_list whole;          // between a forward pass and its backward pass; not in the graph
  variable_list graph_results;  // the same as the graph knows them, for blocks that run more than once
  bool has_bytes = false;       // of `whole`

  // Tensors without their memory keep their place in the graphs that saved them.
  void drop_bytes() {
    if (!has_bytes) return;
    const c10::Storage& storage = whole[0].storage();
    storage.set_data_ptr_noswap(at::DataPtr(nullptr, storage.device()));
    has_bytes = false;
  }
  void restore_bytes(BufferPool& pool) {
    const c10::Storage& storage = whole[0].storage();
    storage.set_data_ptr_noswap(pool.take(static_cast<int64_t>(storage.nbytes()), storage.device()));
    has_bytes = true;
  }
};

struct ShardedWeights::Scatter {
  Sharded* sharded = nullptr;
  at::Tensor send, receive;
  PendingPtr pending;
};

// Local parts -> whole parameters; backwards, gradients of the whole are on their way to their owners when
// this returns, and finish_backward() puts them into place, so that none are returned here.
struct ShardedWeights::Gather : torch::autograd::Function<ShardedWeights::Gather> {
  static variable_list forward(AutogradContext* context, ShardedWeights* weights, Sharded* sharded,
                               at::TensorList locals) {
    context->saved_data["weights"] = reinterpret_cast<int64_t>(weights);
    context->saved_data["sharded"] = reinterpret_cast<int64_t>(sharded);
    context->saved_data["count"] = static_cast<int64_t>(locals.size());
    const variable_list whole = weights->make_whole(*sharded);
    weights->start_gather(*sharded);
    weights->finish_gather(*sharded, whole);
    weights->prefetch(*sharded);
    return whole;
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    auto* weights = reinterpret_cast<ShardedWeights*>(context->saved_data["weights"].toInt());
    auto* sharded = reinterpret_cast<Sharded*>(context->saved_data["sharded"].toInt());
    weights->start_scatter(*sharded, gradients);
    return variable_list(2 + static_cast<size_t>(context->saved_data["count"].toInt()));
  }
};

ShardedWeights::ShardedWeights(ProcessGroups& groups, Model& model, const Options& options)
    : shards_(groups.group("fsdp")), replicas_(groups.group("dp_replicate")), options_(options) {
  for (const Block* block : model.blocks()) {
    auto sharded = std::make_unique<Sharded>();
    sharded->block = block;
    sharded->position = sharded_.size();
    sharded->pieces = lay_out(*block, shards_.size());
    for (const Piece& piece : sharded->pieces) sharded->buffer_size += piece.numel;
    sharded_.push_back(std::move(sharded));
  }
}

ShardedWeights::~ShardedWeights() {
  // Buffers must not go away under an operation; what went wrong is known elsewhere by then.
  const auto settle = [](const PendingPtr& pending) {
    try {
      if (pending != nullptr) pending->wait();
    } catch (const std::exception&) {
      return;
    }
  };
  for (const auto& sharded : sharded_) settle(sharded->gather);
  if (scatter_ != nullptr) settle(scatter_->pending);
}

ShardedWeights::Sharded& ShardedWeights::find(const Block& block) {
  const auto found = std::find_if(sharded_.begin(), sharded_.end(),
                                  [&](const auto& sharded) { return sharded->block == &block; });
  if (found == sharded_.end()) throw ValueError("block " + block.name + " is not one of this model's");
  return **found;
}

// One buffer, apart from the heap, that all of a block's whole parameters lie in.
std::vector<at::Tensor> ShardedWeights::make_whole(const Sharded& sharded) {
  const std::vector<int64_t> offsets = whole_offsets(sharded.pieces);
  const at::Tensor all = pool_.empty({offsets.back()}, sharded.options(options_.compute_dtype));
  std::vector<at::Tensor> whole;
  for (size_t i = 0; i < sharded.pieces.size(); ++i) {
    whole.push_back(
        at::empty({0}, all.options()).set_(all.storage(), offsets[i], sharded.pieces[i].parameter->shape));
  }
  return whole;
}

std::vector<at::Tensor> ShardedWeights::materialize(const Block& block, at::TensorList locals) {
  Sharded& sharded = find(block);
  if (!at::GradMode::is_enabled()) {
    const variable_list whole = make_whole(sharded);
    start_gather(sharded);
    finish_gather(sharded, whole);
    prefetch(sharded);
    return whole;
  }
  if (!sharded.graph_results.empty()) return sharded.graph_results;
  const variable_list results = Gather::apply(this, &sharded, locals);
  sharded.whole.clear();
  for (const at::Tensor& result : results) sharded.whole.push_back(result.variable_data());
  sharded.has_bytes = true;
  // Layers run once in a pass; embedding and head may run again, for prediction layers.
  if (!block.is_layer) sharded.graph_results = results;
  return results;
}

void ShardedWeights::release(const Block& block) {
  Sharded& sharded = find(block);
  if (!options_.reshard_after_forward || !block.is_layer || sharded.whole.empty()) return;
  sharded.drop_bytes();
}

void ShardedWeights::prepare_backward(const Block& block) {
  Sharded& sharded = find(block);
  is_backward_ = true;
  if (sharded.whole.empty() || sharded.has_bytes) return;
  start_gather(sharded);
  sharded.restore_bytes(pool_);
  finish_gather(sharded, sharded.whole);
  prefetch(sharded);
}

void ShardedWeights::start_gather(Sharded& sharded) {
  if (sharded.gather != nullptr) return;
  const at::NoGradGuard no_grad;
  const at::TensorOptions options = sharded.options(options_.compute_dtype);
  sharded.send = pool_.empty({sharded.buffer_size}, options);
  sharded.receive = pool_.empty({shards_.size() * sharded.buffer_size}, options);
  for (const Piece& piece : sharded.pieces) {
    const at::Tensor rows = local_rows(piece, sharded.send);
    if (rows.numel() < piece.numel) sharded.send.narrow(0, piece.offset, piece.numel).zero_();
    rows.copy_(piece.parameter->local.detach());
  }
  sharded.gather = shards_.all_gather(sharded.receive, sharded.send);
}

void ShardedWeights::finish_gather(Sharded& sharded, const std::vector<at::Tensor>& whole) {
  const at::NoGradGuard no_grad;
  {
    const WaitTimer timer(exposed_.gather);
    std::exchange(sharded.gather, nullptr)->wait();
  }
  for (int64_t shard = 0; shard < shards_.size(); ++shard) {
    const at::Tensor buffer = sharded.receive.narrow(0, shard * sharded.buffer_size, sharded.buffer_size);
    for (size_t i = 0; i < whole.size(); ++i) {
      const Rows rows = rows_of(sharded.pieces[i], whole[i].variable_data(), buffer, shard);
      rows.of_whole.copy_(rows.of_part);
    }
  }
  sharded.send.reset();
  sharded.receive.reset();
}

// The layer that runs next is gathered while this one computes.
void ShardedWeights::prefetch(const Sharded& sharded) {
  const size_t next = is_backward_ ? sharded.position - 1 : sharded.position + 1;
  if (next >= sharded_.size()) return;
  Sharded& neighbour = *sharded_[next];
  if (!neighbour.block->is_layer || neighbour.has_bytes) return;
  start_gather(neighbour);
}

void ShardedWeights::start_scatter(Sharded& sharded, const std::vector<at::Tensor>& gradients) {
  finish_scatter();
  const at::NoGradGuard no_grad;
  auto scatter = std::make_unique<Scatter>();
  scatter->sharded = &sharded;
  sharded.drop_bytes();
  const at::TensorOptions options = sharded.options(options_.reduce_dtype);
  scatter->send = pool_.empty({shards_.size() * sharded.buffer_size}, options).zero_();
  scatter->receive = pool_.empty({sharded.buffer_size}, options);
  for (int64_t shard = 0; shard < shards_.size(); ++shard) {
    const at::Tensor buffer = scatter->send.narrow(0, shard * sharded.buffer_size, sharded.buffer_size);
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (!gradients[i].defined()) continue;
      const Rows rows = rows_of(sharded.pieces[i], gradients[i], buffer, shard);
      rows.of_part.copy_(rows.of_whole);
    }
  }
  sharded.whole.clear();
  sharded.graph_results.clear();
  scatter->pending =
      reduce_scatter(shards_, scatter->receive, scatter->send, pool_.empty(scatter->send.sizes(), options));
  scatter_ = std::move(scatter);
}

void ShardedWeights::finish_scatter() {
  if (scatter_ == nullptr) return;
  const std::unique_ptr<Scatter> scatter = std::move(scatter_);
  const at::NoGradGuard no_grad;
  {
    const WaitTimer timer(exposed_.scatter);
    scatter->pending->wait();
    all_reduce(replicas_, scatter->receive);
  }
  for (const Piece& piece : scatter->sharded->pieces) {
    at::Tensor& local = piece.parameter->local;
    const at::Tensor sum = local_rows(piece, scatter->receive);
    if (local.grad().defined()) {
      local.mutable_grad().add_(sum);
    } else {
      local.mutable_grad() = sum.to(local.scalar_type(), false, /*copy=*/true).contiguous();
    }
  }
}

void ShardedWeights::finish_backward() {
  finish_scatter();
  is_backward_ = false;
  for (const auto& sharded : sharded_) {
    sharded->whole.clear();
    sharded->graph_results.clear();
    sharded->has_bytes = false;
  }
}

ExposedTime ShardedWeights::take_exposed() { return std::exchange(exposed_, {}); }

}  // namespace milepost::train
