// The ledger, JSON:
//
//   {"format": 1, "dataset": name, "data": fingerprint, "tokenizer": fingerprint, "documents": n,
//    "order": "torchtitan" or "global", "world": ranks,
//    "readers": [{"epoch": e, "batches": k, "pending": [[epoch, first, stride, count, shuffled, from,
//    to]...],
//                 "buffers": [inputs, labels, positions]}...]}
//
// A rank's share is the same with one reader.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "milepost/base/checked_math.h"
#include "milepost/base/error.h"
#include "milepost/data/loader_state.h"

namespace milepost::data {
namespace {

using Json = nlohmann::json;

constexpr int64_t kFormat = 1;

[[noreturn]] void fail(ErrorCode code, const std::string& what) {
  throw FormatError(code, "data ledger: " + what,
                    "leave the loader out of the load with --checkpoint.exclude-from-loading dataloader");
}

const Json& member(const Json& object, const char* key) {
  if (!object.is_object() || !object.contains(key)) {
    fail(ErrorCode::kBadFormat, "'" + std::string(key) + "' is missing");
  }
  return object[key];
}

std::string text_of(const Json& object, const char* key) {
  const Json& value = member(object, key);
  if (!value.is_string()) fail(ErrorCode::kBadFormat, "'" + std::string(key) + "' is no text");
  return value.get<std::string>();
}

int64_t count(const Json& value, const char* what) {
  if (!value.is_number_unsigned() || value.get<uint64_t>() > INT64_MAX) {
    fail(ErrorCode::kBadFormat, "'" + std::string(what) + "' is no count");
  }
  return value.get<int64_t>();
}

std::vector<int32_t> numbers(const Json& list) {
  if (!list.is_array()) fail(ErrorCode::kBadFormat, "'buffers' holds something else than lists");
  std::vector<int32_t> out;
  out.reserve(list.size());
  for (const Json& item : list) {
    const int64_t number = count(item, "buffers");
    if (number > INT32_MAX) fail(ErrorCode::kBadFormat, "'buffers' holds a number too large");
    out.push_back(static_cast<int32_t>(number));
  }
  return out;
}

Json segment_json(const Segment& s) {
  return Json::array({s.epoch, s.first, s.stride, s.count, s.shuffled ? 1 : 0, s.from, s.to});
}

Segment read_segment(const Json& list, int64_t num_documents, int64_t last_epoch) {
  if (!list.is_array() || list.size() != 7) fail(ErrorCode::kBadFormat, "a pending segment has no 7 numbers");
  const auto number = [&](size_t i) { return count(list[i], "pending"); };
  const Segment s{.epoch = number(0),
                  .first = number(1),
                  .stride = number(2),
                  .count = number(3),
                  .shuffled = number(4) != 0,
                  .from = number(5),
                  .to = number(6)};
  int64_t last = 0;  // the highest document
  const bool fits = s.stride > 0 && s.from < s.to && s.to <= s.count && s.epoch <= last_epoch &&
                    checked_mul(s.stride, s.count - 1, &last) && checked_add(last, s.first, &last) &&
                    last < num_documents;
  if (!fits) fail(ErrorCode::kOutOfBounds, "a pending segment leaves the data set");
  return s;
}

LoaderState read_reader(const Json& object, int64_t num_documents) {
  LoaderState state;
  state.order.epoch = count(member(object, "epoch"), "epoch");
  state.num_batches = count(member(object, "batches"), "batches");
  const Json& pending = member(object, "pending");
  if (!pending.is_array()) fail(ErrorCode::kBadFormat, "'pending' is no list");
  for (const Json& segment : pending) {
    state.order.pending.push_back(read_segment(segment, num_documents, state.order.epoch));
  }
  const Json& buffers = member(object, "buffers");
  if (!buffers.is_array() || buffers.size() != 3)
    fail(ErrorCode::kBadFormat, "'buffers' are not three lists");
  state.buffers = {numbers(buffers[0]), numbers(buffers[1]), numbers(buffers[2])};
  if (state.buffers.inputs.size() != state.buffers.labels.size() ||
      state.buffers.inputs.size() != state.buffers.positions.size()) {
    fail(ErrorCode::kBadFormat, "'buffers' differ in length");
  }
  return state;
}

DataOrder read_order(const std::string& name) {
  for (DataOrder order : {DataOrder::kTorchTitan, DataOrder::kGlobal}) {
    if (data_order_name(order) == name) return order;
  }
  fail(ErrorCode::kBadFormat, "'order' is '" + printable(name) + "', expected torchtitan or global");
}

Ledger read_root(const Json& root) {
  if (count(member(root, "format"), "format") != kFormat) {
    fail(ErrorCode::kUnsupported, "is of a format that this version does not know");
  }
  Ledger ledger;
  ledger.identity = {.dataset = text_of(root, "dataset"),
                     .data_fingerprint = text_of(root, "data"),
                     .tokenizer = text_of(root, "tokenizer"),
                     .num_documents = count(member(root, "documents"), "documents"),
                     .order = read_order(text_of(root, "order")),
                     .world = count(member(root, "world"), "world")};
  const Json& readers = member(root, "readers");
  if (!readers.is_array()) fail(ErrorCode::kBadFormat, "'readers' is no list");
  for (const Json& reader : readers) {
    ledger.readers.push_back(read_reader(reader, ledger.identity.num_documents));
  }
  const int64_t expected = ledger.identity.order == DataOrder::kGlobal ? 1 : ledger.identity.world;
  if (std::ssize(ledger.readers) != expected) {
    fail(ErrorCode::kBadFormat,
         "has " + std::to_string(ledger.readers.size()) + " readers, expected " + std::to_string(expected));
  }
  return ledger;
}

}  // namespace

std::string_view data_order_name(DataOrder order) {
  return order == DataOrder::kGlobal ? "global" : "torchtitan";
}

std::string ledger_part(const LedgerIdentity& identity, const LoaderState& state) {
  Json pending = Json::array();
  for (const Segment& segment : state.order.pending) pending.push_back(segment_json(segment));
  const PackingBuffers& buffers = state.buffers;
  const Json reader = {{"epoch", state.order.epoch},
                       {"batches", state.num_batches},
                       {"pending", std::move(pending)},
                       {"buffers", Json::array({buffers.inputs, buffers.labels, buffers.positions})}};
  return Json{{"format", kFormat},
              {"dataset", identity.dataset},
              {"data", identity.data_fingerprint},
              {"tokenizer", identity.tokenizer},
              {"documents", identity.num_documents},
              {"order", data_order_name(identity.order)},
              {"world", identity.world},
              {"readers", Json::array({reader})}}
      .dump();
}

std::string join_ledger(std::span<const std::string> parts) {
  Json joined;
  for (const std::string& part : parts) {
    Json one = Json::parse(part, nullptr, /*allow_exceptions=*/false);
    if (one.is_discarded() || !member(one, "readers").is_array())
      fail(ErrorCode::kBadFormat, "a share is no JSON");
    if (joined.is_null()) {
      joined = std::move(one);
    } else if (joined["order"] != data_order_name(DataOrder::kGlobal)) {
      for (Json& reader : one["readers"]) joined["readers"].push_back(std::move(reader));
    }
  }
  return joined.dump();
}

Ledger read_ledger(std::string_view text, std::string_view name) {
  try {
    const Json root = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (root.is_discarded()) fail(ErrorCode::kBadFormat, "is no JSON");
    return read_root(root);
  } catch (Error& error) {
    error.set_path(name);
    throw;
  }
}

}  // namespace milepost::data
