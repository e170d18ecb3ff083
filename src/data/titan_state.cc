// TorchTitan's loader state, a dictionary of nine keys:
//
//   _index_sampler_state None, _sampler_iter_state {"samples_yielded": rows} or None, _sampler_iter_yielded
//   and _num_yielded (batches), _IterableDataset_len_called None, _shared_seed None, fetcher_state
//   {"dataset_iter_state": None, "fetcher_ended": False}, dataset_state {inputs_buffer, labels_buffer,
//   positions_buffer, sample_idx, epoch}, _iterator_finished False
#include <array>
#include <optional>

#include "milepost/base/checked_math.h"
#include "milepost/base/error.h"
#include "milepost/data/loader_state.h"
#include "milepost/format/pickle.h"

namespace milepost::data {
namespace {

using pickle::Kind;
using pickle::Value;

constexpr std::array<std::string_view, 9> kKeys{
    "_index_sampler_state",        "_sampler_iter_state", "_sampler_iter_yielded", "_num_yielded",
    "_IterableDataset_len_called", "_shared_seed",        "fetcher_state",         "dataset_state",
    "_iterator_finished"};

[[noreturn]] void fail(ErrorCode code, const std::string& what) {
  throw FormatError(code, "data loader state: " + what,
                    "leave the loader out of the load with --checkpoint.exclude-from-loading dataloader");
}

const Value& member(const Value& dict, std::string_view key) {
  const Value* found = dict.find(key);
  if (!found) fail(ErrorCode::kMissingKey, "key '" + std::string(key) + "' is missing");
  return *found;
}

int64_t count(const Value& value, std::string_view key) {
  if (value.kind() != Kind::kInt || value.as_int() < 0) {
    fail(ErrorCode::kBadFormat, "'" + std::string(key) + "' is no count");
  }
  return value.as_int();
}

std::vector<int32_t> numbers(const Value& list, std::string_view key) {
  if (list.kind() != Kind::kList) fail(ErrorCode::kBadFormat, "'" + std::string(key) + "' is no list");
  std::vector<int32_t> out;
  out.reserve(static_cast<size_t>(list.size()));
  for (int64_t i = 0; i < list.size(); ++i) {
    const int64_t number = count(list.item(i), key);
    if (number > INT32_MAX)
      fail(ErrorCode::kBadFormat, "'" + std::string(key) + "' holds a number too large");
    out.push_back(static_cast<int32_t>(number));
  }
  return out;
}

void read_positions(const Value& state, TitanLoaderState* out) {
  if (const Value* positions = state.find("positions_buffer")) {
    out->buffers.positions = numbers(*positions, "positions_buffer");
    return;
  }
  out->warnings.push_back(
      "The checkpoint's data loader state has no positions_buffer: tokens in the packing buffer are taken as "
      "one document");
  for (size_t i = 0; i < out->buffers.inputs.size(); ++i) {
    out->buffers.positions.push_back(static_cast<int32_t>(i));
  }
}

TitanLoaderState read_root(const Value& root) {
  if (root.kind() != Kind::kDict) fail(ErrorCode::kBadFormat, "is no dictionary");
  if (root.find("_snapshot")) {
    fail(ErrorCode::kUnsupported, "was written by a loader with workers (dataloader.num_workers > 0)");
  }
  for (std::string_view key : kKeys) member(root, key);
  TitanLoaderState out;
  out.num_batches = count(member(root, "_num_yielded"), "_num_yielded");
  const Value& state = member(root, "dataset_state");
  if (state.kind() != Kind::kDict) fail(ErrorCode::kBadFormat, "'dataset_state' is no dictionary");
  if (state.find("data") && !state.find("sample_idx")) {
    fail(ErrorCode::kUnsupported, "is of a streaming data set");
  }
  out.buffers.inputs = numbers(member(state, "inputs_buffer"), "inputs_buffer");
  out.buffers.labels = numbers(member(state, "labels_buffer"), "labels_buffer");
  read_positions(state, &out);
  if (out.buffers.inputs.size() != out.buffers.labels.size() ||
      out.buffers.inputs.size() != out.buffers.positions.size()) {
    fail(ErrorCode::kBadFormat, "its buffers differ in length");
  }
  out.sample_idx = count(member(state, "sample_idx"), "sample_idx");
  if (const Value* epoch = state.find("epoch")) out.epoch = count(*epoch, "epoch");
  return out;
}

// Makes a dictionary's members, in order.
class DictBuilder {
 public:
  explicit DictBuilder(pickle::Builder* builder) : builder_(builder) {}
  DictBuilder& add(std::string_view key, const Value* value) {
    items_.push_back(builder_->string(key));
    items_.push_back(value);
    return *this;
  }
  const Value* make() { return builder_->dict(items_); }

 private:
  pickle::Builder* builder_;
  std::vector<const Value*> items_;
};

const Value* list_of(pickle::Builder* builder, const std::vector<int32_t>& numbers) {
  std::vector<const Value*> items;
  items.reserve(numbers.size());
  for (int32_t number : numbers) items.push_back(builder->integer(number));
  return builder->list(items);
}

}  // namespace

std::string write_titan_state(const TitanLoaderState& state, int64_t rows_per_batch) {
  int64_t rows = 0;
  if (!checked_mul(state.num_batches, rows_per_batch, &rows)) rows = 0;
  pickle::Builder b;
  const Value* dataset = DictBuilder(&b)
                             .add("inputs_buffer", list_of(&b, state.buffers.inputs))
                             .add("labels_buffer", list_of(&b, state.buffers.labels))
                             .add("positions_buffer", list_of(&b, state.buffers.positions))
                             .add("sample_idx", b.integer(state.sample_idx))
                             .add("epoch", b.integer(state.epoch))
                             .make();
  const Value* fetcher =
      DictBuilder(&b).add("dataset_iter_state", b.none()).add("fetcher_ended", b.boolean(false)).make();
  const Value* root = DictBuilder(&b)
                          .add(kKeys[0], b.none())
                          .add(kKeys[1], DictBuilder(&b).add("samples_yielded", b.integer(rows)).make())
                          .add(kKeys[2], b.integer(state.num_batches))
                          .add(kKeys[3], b.integer(state.num_batches))
                          .add(kKeys[4], b.none())
                          .add(kKeys[5], b.none())
                          .add(kKeys[6], fetcher)
                          .add(kKeys[7], dataset)
                          .add(kKeys[8], b.boolean(false))
                          .make();
  const pickle::Document document = b.finish(root);
  VectorSink sink;
  pickle::write(document.root(), sink);
  return std::string(as_text(sink.data));
}

TitanLoaderState read_titan_state(std::string_view bytes, std::string_view name) {
  const pickle::Document document = pickle::read(as_bytes(bytes), {.profile = pickle::Profile::kPlain}, name);
  try {
    return read_root(document.root());
  } catch (Error& error) {
    error.set_path(name);
    throw;
  }
}

}  // namespace milepost::data
