// How a value is written (protocol 2, as Python's C pickler and torch.save do):
//
// 1. PROTO 2, the value, STOP.
// 2. Everything but numbers, None, booleans and the empty tuple gets a memo number when it is complete enough
//    to be referred to (lists, dicts and objects before their content, all else after), and is written as GET
//    afterwards.
// 3. A tuple or call whose content led back to itself has a number by the time its content is written: its
//    parts are popped again and it is fetched.
// 4. Lists and dicts are filled in batches of 1000; a single item has an opcode without a mark. Where a
//    dict's number of items is unknown to Python (OrderedDict gives an iterator), the batches end
//    differently: see write_pairs.
// 5. What protocol 2 has no opcode for is a call: bytes are _codecs.encode(text, "latin1"), names are Python
//    2's.
// 6. A tensor is a call of _rebuild_tensor_v2, or _v3 for dtypes without a storage class, on a persistent id.
#include "format/pickle_encoder.h"

#include <bit>

#include "format/pickle_machine.h"
#include "format/pickle_text.h"

namespace milepost::pickle {
namespace {

constexpr int kMaxWriteDepth = 1000;
constexpr size_t kBatch = 1000;

// Python has one empty text.
constexpr char kEmpty[] = "";

}  // namespace

void Encoder::write(const Value& v) {
  if (++depth_ > kMaxWriteDepth) fail(ErrorCode::kTooLarge, "containers nest more than 1000 deep");
  write_kind(v);
  --depth_;
  if (out_.size() >= kFlushBytes) flush();
}

void Encoder::write_kind(const Value& v) {
  switch (v.kind()) {
    case Kind::kNone:
      return op(kOpNone);
    case Kind::kBool:
      return op(v.as_bool() ? kOpNewTrue : kOpNewFalse);
    case Kind::kInt:
      return write_integer(v.as_int());
    case Kind::kBigInt:
      return write_big(v.text());
    case Kind::kFloat:
      return write_float(v.as_double());
    case Kind::kString:
      return write_text(v);
    case Kind::kDType:
      return write_dtype(v.dtype());
    case Kind::kGlobal:
      return write_global(Layout::global(v)->module(), Layout::global(v)->name());
    case Kind::kStorage: {
      const StorageBody& storage = *Layout::storage(v);
      const std::string_view type = storage.untyped ? std::string_view() : dtype_info(storage.dtype).storage;
      return write_storage(storage.key, type, storage.size_bytes / dtype_size(storage.dtype));
    }
    case Kind::kOpaque:
      fail(ErrorCode::kUnsupported,
           "a value of the unknown class " + printable(v.class_name()) + " cannot be written");
    default:
      break;
  }
  if (v.kind() == Kind::kTuple && v.size() == 0) return op(kOpEmptyTuple);
  if (written(identity_of(v))) return;
  switch (v.kind()) {
    case Kind::kTuple:
      return write_tuple(v);
    case Kind::kList:
      return write_list(v);
    case Kind::kDict:
      return write_dict(v);
    case Kind::kSet:
    case Kind::kFrozenSet:
      return write_set(v);
    case Kind::kSize:
      return write_size(v);
    case Kind::kComplex:
      return write_call_of_items("complex", v);
    case Kind::kSlice:
      return write_call_of_items("slice", v);
    case Kind::kRange:
      return write_call_of_items("range", v);
    case Kind::kBytes:
    case Kind::kByteArray:
      return write_bytes(v);
    case Kind::kDevice:
      return write_device(v);
    case Kind::kPath:
      return write_path(v);
    case Kind::kObject:
      return write_object(v);
    case Kind::kTensor:
      write_tensor(v.tensor());
      return put(identity_of(v));
    default:
      assert(false);
  }
}

void Encoder::write_integer(int64_t x) {
  if (x >= 0 && x <= 0xff) {
    op(kOpBinInt1);
    little(static_cast<uint64_t>(x), 1);
  } else if (x >= 0 && x <= 0xffff) {
    op(kOpBinInt2);
    little(static_cast<uint64_t>(x), 2);
  } else if (x >= INT32_MIN && x <= INT32_MAX) {
    op(kOpBinInt);
    little(static_cast<uint64_t>(x), 4);
  } else {
    write_big(std::to_string(x));
  }
}

void Encoder::write_big(std::string_view decimal) {
  const std::string bytes = long_to_bytes(decimal);
  op(bytes.size() < 256 ? kOpLong1 : kOpLong4);
  little(bytes.size(), bytes.size() < 256 ? 1 : 4);
  out_ += bytes;
}

void Encoder::write_float(double x) {
  op(kOpBinFloat);
  little(__builtin_bswap64(std::bit_cast<uint64_t>(x)), 8);
}

void Encoder::write_text(std::string_view text, const void* address) {
  if (text.empty()) address = kEmpty;
  const Identity identity{address, Kind::kString};
  if (address != nullptr && written(identity)) return;
  if (text.size() > 0xffffffff)
    fail(ErrorCode::kUnsupported, "a text of 4 GiB or more cannot be written at protocol 2");
  op(kOpBinUnicode);
  little(text.size(), 4);
  out_ += text;
  const uint32_t number = put();
  if (address != nullptr) memo_[identity] = number;
}

void Encoder::close_tuple(size_t count) {
  static constexpr Opcode kClose[] = {kOpEmptyTuple, kOpTuple1, kOpTuple2, kOpTuple3};
  op(count <= 3 ? kClose[count] : kOpTuple);
}

void Encoder::write_tuple(const Value& v) {
  const Children kids = children(v);
  if (kids.items.size() > 3) op(kOpMark);
  for (const Value& item : kids.items) write(item);
  if (is_written(identity_of(v))) {  // the content led back here
    if (kids.items.size() > 3) {
      op(kOpPopMark);
    } else {
      for (size_t i = 0; i < kids.items.size(); ++i) op(kOpPop);
    }
    written(identity_of(v));
    return;
  }
  close_tuple(kids.items.size());
  put(identity_of(v));
}

void Encoder::write_list(const Value& v) {
  op(kOpEmptyList);
  put(identity_of(v));
  write_list_items(children(v).items);
}

void Encoder::write_list_items(std::span<const Value> items) {
  if (items.size() == 1) {
    write(items[0]);
    return op(kOpAppend);
  }
  while (!items.empty()) {
    const auto batch = items.first(std::min<size_t>(items.size(), kBatch));
    op(kOpMark);
    for (const Value& item : batch) write(item);
    op(kOpAppends);
    items = items.subspan(batch.size());
  }
}

void Encoder::write_dict(const Value& v) {
  const Children kids = children(v);
  const DictExtra* extra = Layout::dict(v)->extra;
  if (extra == nullptr || extra->type == nullptr) {
    op(kOpEmptyDict);
    put(identity_of(v));
    return write_pairs(kids.items, true);
  }
  write_global(extra->type->module(), extra->type->name());
  if (extra->type->role == Role::kCounter) {  // Counter(dict)
    op(kOpEmptyDict);
    put();
    write_pairs(kids.items, true);
    close_tuple(1);
    put();
  } else if (extra->type->role == Role::kDefaultDict && !extra->factory.is_none()) {
    write(extra->factory);
    close_tuple(1);
    put();
  } else {
    close_tuple(0);
  }
  end_call(identity_of(v));
  if (extra->type->role != Role::kCounter) write_pairs(kids.items, false);
  if (extra->has_attributes) {
    write(extra->attributes);
    op(kOpBuild);
  }
}

void Encoder::write_pair_batch(std::span<const Value> keys_and_values) {
  op(kOpMark);
  for (const Value& v : keys_and_values) write(v);
  op(kOpSetItems);
}

// A dict whose size is known and a multiple of the batch ends with an empty batch; a last pair alone has
// SETITEM only where the size is unknown, or 1.
void Encoder::write_pairs(std::span<const Value> items, bool counted) {
  if (items.empty()) return;
  const bool single = items.size() == 2;
  for (bool full = true; full;) {
    const auto batch = items.first(std::min<size_t>(items.size(), 2 * kBatch));
    items = items.subspan(batch.size());
    full = batch.size() == 2 * kBatch;
    if (batch.size() == 2 && (single || !counted)) {
      write(batch[0]);
      write(batch[1]);
      op(kOpSetItem);
    } else if (!batch.empty() || counted) {
      write_pair_batch(batch);
    }
  }
}

void write(const Value& root, ByteSink& sink) { Encoder(sink).run(root); }

}  // namespace milepost::pickle
