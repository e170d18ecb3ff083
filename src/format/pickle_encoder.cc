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
#include <array>
#include <bit>
#include <unordered_map>

#include "format/pickle_arena.h"
#include "format/pickle_machine.h"
#include "format/pickle_opcodes.h"
#include "format/pickle_text.h"

namespace milepost::pickle {
namespace {

constexpr int kMaxWriteDepth = 1000;
constexpr size_t kFlushBytes = 1 << 16;
constexpr int64_t kBatch = 1000;

// Identities of texts that the encoder itself brings in.
constexpr char kStorageTag[] = "storage", kCpu[] = "cpu", kLatin1[] = "latin1";
// Python has one empty text, and one for each byte that it decodes alone.
constexpr char kEmpty[] = "";
constexpr std::array<char, 256> kDecodedBytes{};

class Encoder {
 public:
  explicit Encoder(ByteSink& sink) : sink_(sink) {}

  void run(const Value& root) {
    op(kOpProto);
    byte(2);
    write(root);
    op(kOpStop);
    flush();
  }

 private:
  struct Identity {
    const void* address;
    Kind kind;
    friend bool operator==(const Identity&, const Identity&) = default;
  };
  struct IdentityHash {
    size_t operator()(const Identity& i) const {
      return std::hash<const void*>()(i.address) * 31 + static_cast<size_t>(i.kind);
    }
  };

  // ---- bytes ----
  void byte(uint8_t b) { out_.push_back(static_cast<char>(b)); }
  void op(Opcode opcode) { byte(opcode); }
  void little(uint64_t value, int size) {
    for (int i = 0; i < size; ++i) byte(static_cast<uint8_t>(value >> 8 * i));
  }
  void flush() {
    sink_.append(milepost::as_bytes(out_));
    out_.clear();
  }

  // ---- memo ----
  void get(uint32_t number) {
    op(number < 256 ? kOpBinGet : kOpLongBinGet);
    little(number, number < 256 ? 1 : 4);
  }
  uint32_t put() {
    const uint32_t number = next_number_++;
    op(number < 256 ? kOpBinPut : kOpLongBinPut);
    little(number, number < 256 ? 1 : 4);
    return number;
  }
  void put(const Identity& identity) { memo_[identity] = put(); }
  bool written(const Identity& identity) {
    const auto found = memo_.find(identity);
    if (found == memo_.end()) return false;
    get(found->second);
    return true;
  }
  bool is_written(const Identity& identity) const { return memo_.contains(identity); }
  static Identity identity_of(const Value& v) { return {Layout::address(v), v.kind()}; }

  // ---- values ----
  void write(const Value& v) {
    if (++depth_ > kMaxWriteDepth) fail(ErrorCode::kTooLarge, "containers nest more than 1000 deep");
    write_kind(v);
    --depth_;
    if (out_.size() >= kFlushBytes) flush();
  }
  void write_kind(const Value& v);
  void write_integer(int64_t x);
  void write_float(double x);
  void write_big(std::string_view decimal);
  void write_text(std::string_view text, const void* address);  // nullptr: written here only
  void write_text(const Value& v) { write_text(v.text(), Layout::address(v)); }
  void write_tuple(const Value& v);
  void close_tuple(size_t count);
  void write_list(const Value& v);
  void write_list_items(std::span<const Value> items);
  void write_dict(const Value& v);
  void write_pairs(std::span<const Value> keys_and_values, bool counted);
  void write_pair_batch(std::span<const Value> keys_and_values);
  void write_global(std::string_view module, std::string_view name);
  void write_call_of_items(std::string_view name, const Value& v);
  void write_set(const Value& v);
  void write_size(const Value& v);
  void write_bytes(const Value& v);
  void write_encoded(std::string_view bytes);
  void write_device(const Value& v);
  void write_path(const Value& v);
  void write_object(const Value& v);
  void end_call(const Identity& identity);

  // ---- tensors ----
  void write_dtype(DType dtype) { write_global("torch", dtype_name(dtype)); }
  void write_storage(std::string_view key, std::string_view storage_class, int64_t size);
  void write_dims(const std::vector<int64_t>& dims);
  void write_empty_ordered_dict();
  void write_tensor(const TensorRef& ref);
  void write_tensor_data(const TensorRef& ref, bool requires_grad);
  void write_view_bits(const TensorRef& ref);

  ByteSink& sink_;
  std::string out_;
  std::unordered_map<Identity, uint32_t, IdentityHash> memo_;
  std::unordered_map<std::string, uint32_t> globals_, storage_keys_;
  uint32_t next_number_ = 0;
  int depth_ = 0;
};

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

void Encoder::write_global(std::string_view module, std::string_view name) {
  if (module == "builtins") {  // Python 2's names
    module = "__builtin__";
    if (name == "range") name = "xrange";
    if (name == "str") name = "unicode";
    if (name == "int") name = "long";
  } else if (module == "copyreg") {
    module = "copy_reg";
  }
  const std::string text = std::string(module) + "\n" + std::string(name) + "\n";
  if (const auto found = globals_.find(text); found != globals_.end()) return get(found->second);
  op(kOpGlobal);
  out_ += text;
  globals_[text] = put();
}

// REDUCE, and the number; unless the arguments led back to the same value.
void Encoder::end_call(const Identity& identity) {
  op(kOpReduce);
  if (is_written(identity)) {
    op(kOpPop);
    written(identity);
  } else {
    put(identity);
  }
}

void Encoder::write_call_of_items(std::string_view name, const Value& v) {
  const auto items = children(v).items;
  write_global("builtins", name);
  if (items.size() > 3) op(kOpMark);
  for (const Value& item : items) write(item);
  close_tuple(items.size());
  put();
  end_call(identity_of(v));
}

void Encoder::write_set(const Value& v) {
  write_global("builtins", v.kind() == Kind::kSet ? "set" : "frozenset");
  op(kOpEmptyList);
  put();
  write_list_items(children(v).items);
  close_tuple(1);
  put();
  end_call(identity_of(v));
}

void Encoder::write_size(const Value& v) {
  const auto items = children(v).items;
  write_global("torch", "Size");
  if (items.size() > 3) op(kOpMark);
  for (const Value& item : items) write(item);
  close_tuple(items.size());
  if (!items.empty()) put();
  close_tuple(1);
  put();
  end_call(identity_of(v));
}

void Encoder::write_bytes(const Value& v) {
  const bool is_array = v.kind() == Kind::kByteArray;
  if (is_array) write_global("builtins", "bytearray");
  if (is_array && v.text().empty()) {
    close_tuple(0);
  } else {
    write_encoded(v.text());
    if (!is_array) return end_call(identity_of(v));
    op(kOpReduce);
    put();
    close_tuple(1);
    put();
  }
  end_call(identity_of(v));
}

// What is called to make the bytes, and the arguments.
void Encoder::write_encoded(std::string_view bytes) {
  if (bytes.empty()) {
    write_global("builtins", "bytes");
    return close_tuple(0);
  }
  write_global("_codecs", "encode");
  write_text(latin1_text(bytes),
             bytes.size() == 1 ? &kDecodedBytes[static_cast<unsigned char>(bytes[0])] : nullptr);
  write_text(kLatin1, kLatin1);
  close_tuple(2);
  put();
}

void Encoder::write_device(const Value& v) {
  const std::string_view text = v.text();
  const size_t colon = text.rfind(':');
  write_global("torch", "device");
  write_text(text.substr(0, colon), nullptr);
  if (colon != std::string_view::npos) write_integer(long_from_text(text.substr(colon + 1))->value);
  close_tuple(colon == std::string_view::npos ? 1 : 2);
  put();
  end_call(identity_of(v));
}

void Encoder::write_path(const Value& v) {
  write_global("pathlib", path_class_name(static_cast<PathStyle>(Layout::detail(v))));
  write_text(v);
  close_tuple(1);
  put();
  end_call(identity_of(v));
}

void Encoder::write_object(const Value& v) {
  const Global& type = *Layout::object(v)->type;
  if (type.role == Role::kShown) {
    fail(ErrorCode::kUnsupported, "a value of the class " + printable(type.text) + " cannot be written");
  }
  write_global(type.module(), type.name());
  if (type.role == Role::kEnum) {
    write(*v.state());
    return end_call(identity_of(v));
  }
  op(kOpEmptyTuple);
  op(kOpNewObj);
  put(identity_of(v));
  if (v.state() == nullptr) return;
  write(*v.state());
  op(kOpBuild);
}

// ---- tensors ----

void Encoder::write_storage(std::string_view key, std::string_view storage_class, int64_t size) {
  op(kOpMark);
  write_text(kStorageTag, kStorageTag);
  if (storage_class.empty()) {
    write_global("torch.storage", "UntypedStorage");
  } else {
    write_global("torch", storage_class);
  }
  if (const auto found = storage_keys_.find(std::string(key)); found != storage_keys_.end()) {
    get(found->second);
  } else {
    op(kOpBinUnicode);
    little(key.size(), 4);
    out_ += key;
    storage_keys_[std::string(key)] = put();
  }
  write_text(kCpu, kCpu);
  write_integer(size);
  op(kOpTuple);
  put();
  op(kOpBinPersId);
}

void Encoder::write_dims(const std::vector<int64_t>& dims) {
  if (dims.size() > 3) op(kOpMark);
  for (const int64_t d : dims) write_integer(d);
  close_tuple(dims.size());
  if (!dims.empty()) put();
}

void Encoder::write_empty_ordered_dict() {
  write_global("collections", "OrderedDict");
  op(kOpEmptyTuple);
  op(kOpReduce);
  put();
}

void Encoder::write_view_bits(const TensorRef& ref) {
  op(kOpEmptyDict);
  put();
  const bool both = ref.conj && ref.neg;
  if (both) op(kOpMark);
  for (const auto& [name, set] : {std::pair{"conj", ref.conj}, std::pair{"neg", ref.neg}}) {
    if (!set) continue;
    write_text(name, name);
    op(kOpNewTrue);
  }
  op(both ? kOpSetItems : kOpSetItem);
}

void Encoder::write_tensor_data(const TensorRef& ref, bool requires_grad) {
  const std::string_view storage_class = dtype_info(ref.dtype).storage;
  const bool untyped = storage_class.empty();
  write_global("torch._utils", untyped ? "_rebuild_tensor_v3" : "_rebuild_tensor_v2");
  op(kOpMark);
  write_storage(ref.storage_key, storage_class,
                untyped ? ref.storage_bytes : ref.storage_bytes / dtype_size(ref.dtype));
  write_integer(ref.storage_offset);
  write_dims(ref.sizes);
  write_dims(ref.strides);
  op(requires_grad ? kOpNewTrue : kOpNewFalse);
  write_empty_ordered_dict();
  if (untyped) write_dtype(ref.dtype);
  if (ref.conj || ref.neg) write_view_bits(ref);
  op(kOpTuple);
  put();
  op(kOpReduce);
}

void Encoder::write_tensor(const TensorRef& ref) {
  if (!ref.is_parameter) return write_tensor_data(ref, ref.requires_grad);
  write_global("torch._utils", "_rebuild_parameter");
  write_tensor_data(ref, false);
  put();
  op(ref.requires_grad ? kOpNewTrue : kOpNewFalse);
  write_empty_ordered_dict();
  close_tuple(3);
  put();
  op(kOpReduce);
}

}  // namespace

void write(const Value& root, ByteSink& sink) { Encoder(sink).run(root); }

}  // namespace milepost::pickle
