// The pickle of one tensor (spec dcp-format, section 3.2), protocol 2. `put` is a memo number (BINPUT n) that
// torch writes behind most objects and that nothing refers to:
//
//   PROTO 2, GLOBAL "torch._utils _rebuild_tensor_v2" put, MARK
//     MARK "storage" put, GLOBAL "torch FloatStorage" put, "0" put, "cpu" put, elements, TUPLE put, BINPERSID
//     storage offset, tuple of sizes put, tuple of strides put, NEWFALSE
//     GLOBAL "collections OrderedDict" put, EMPTY_TUPLE, REDUCE put
//   TUPLE put, REDUCE put, STOP
//
// Dtypes without a storage class: "_rebuild_tensor_v3", GLOBAL "torch.storage UntypedStorage" with its size
// in bytes, and before the last TUPLE GLOBAL "torch float8_e4m3fn" put.
#include "format/torch_zip_tensor_pickle.h"

#include <fmt/format.h>

#include <array>
#include <cstring>

#include "milepost/base/checked_math.h"
#include "milepost/base/error.h"

namespace milepost::torch_zip {
namespace {

constexpr char kBinPut = 'q', kBinUnicode = 'X', kBinInt1 = 'K', kBinInt2 = 'M', kBinInt = 'J',
               kLong1 = '\x8a';
constexpr char kMark = '(', kTuple = 't', kEmptyTuple = ')', kTuple1 = '\x85', kTuple3 = '\x87';
constexpr char kNewTrue = '\x88', kNewFalse = '\x89', kReduce = 'R', kStop = '.';

constexpr std::string_view kProtocol = "\x80\x02";
constexpr std::string_view kRebuild = "ctorch._utils\n_rebuild_tensor_v";  // and 2 or 3
constexpr std::string_view kStorageTag{"X\x07\0\0\0storage", 12};
constexpr std::string_view kTypedStorage = "ctorch\n";  // and the class
constexpr std::string_view kUntypedStorage = "ctorch.storage\nUntypedStorage\n";
constexpr std::string_view kFirstKey{
    "X\x01\0\0\0"
    "0",
    6};
constexpr std::string_view kCpu{"X\x03\0\0\0cpu", 8};
constexpr std::string_view kOrderedDict = "ccollections\nOrderedDict\n";

class Matcher {
 public:
  explicit Matcher(Bytes pickle) : rest_(as_text(pickle)) {}

  bool literal(std::string_view text) {
    if (!rest_.starts_with(text)) return false;
    rest_.remove_prefix(text.size());
    return true;
  }
  bool opcode(char code) {
    if (rest_.empty() || rest_.front() != code) return false;
    rest_.remove_prefix(1);
    return true;
  }
  void put() {
    if (rest_.size() >= 2 && rest_.front() == kBinPut) rest_.remove_prefix(2);
  }
  // Up to the next newline, which is consumed too.
  bool line(std::string_view* text) {
    size_t end = rest_.substr(0, 64).find('\n');
    if (end == rest_.npos) return false;
    *text = rest_.substr(0, end);
    rest_.remove_prefix(end + 1);
    return true;
  }
  // A short string of printable ASCII.
  bool string(std::string_view* text) {
    if (!opcode(kBinUnicode) || rest_.size() < 4) return false;
    uint32_t length = 0;
    std::memcpy(&length, rest_.data(), sizeof(length));
    rest_.remove_prefix(4);
    if (length > 64 || length > rest_.size()) return false;
    *text = rest_.substr(0, length);
    rest_.remove_prefix(length);
    for (char c : *text) {
      if (c < 0x20 || c > 0x7e) return false;
    }
    return true;
  }
  bool integer(int64_t* value) {
    *value = 0;
    if (opcode(kBinInt1)) return little_endian(1, value);
    if (opcode(kBinInt2)) return little_endian(2, value);
    if (opcode(kBinInt)) {
      if (!little_endian(4, value)) return false;
      *value = static_cast<int32_t>(*value);
      return true;
    }
    if (!opcode(kLong1) || rest_.empty()) return false;
    auto length = static_cast<unsigned char>(rest_.front());
    rest_.remove_prefix(1);
    if (length == 0) return true;
    if (length > 8 || !little_endian(length, value)) return false;
    int shift = 64 - 8 * length;
    *value = static_cast<int64_t>(static_cast<uint64_t>(*value) << shift) >> shift;
    return true;
  }
  bool integers(Dims* values) {
    values->clear();
    if (opcode(kEmptyTuple)) return true;
    bool marked = opcode(kMark);
    while (!rest_.empty()) {
      char code = rest_.front();
      if (marked ? code == kTuple : code >= kTuple1 && code <= kTuple3) {
        rest_.remove_prefix(1);
        put();
        return marked || static_cast<int>(values->size()) == code - kTuple1 + 1;
      }
      int64_t value = 0;
      if (values->size() == kMaxDims || !integer(&value)) return false;
      values->push_back(value);
    }
    return false;
  }

 private:
  bool little_endian(size_t length, int64_t* value) {
    if (rest_.size() < length) return false;
    std::memcpy(value, rest_.data(), length);
    rest_.remove_prefix(length);
    return true;
  }

  std::string_view rest_;
};

// MARK ... BINPERSID.
bool match_storage(Matcher& in, bool untyped, TensorPickle* tensor, int64_t* count) {
  std::string_view name, location;
  if (!in.opcode(kMark) || !in.literal(kStorageTag)) return false;
  in.put();
  if (untyped) {
    if (!in.literal(kUntypedStorage)) return false;
  } else {
    if (!in.literal(kTypedStorage) || !in.line(&name)) return false;
    std::optional<DType> dtype = dtype_from_storage(name);
    if (!dtype) return false;
    tensor->dtype = *dtype;
  }
  in.put();
  if (!in.string(&tensor->storage_key)) return false;
  in.put();
  if (!in.string(&location)) return false;
  in.put();
  if (!in.integer(count) || !in.opcode(kTuple)) return false;
  in.put();
  return in.opcode('Q');
}

bool is_valid(const TensorPickle& tensor, int64_t count, bool untyped) {
  if (count < 0 || tensor.storage_offset < 0 || tensor.sizes.size() != tensor.strides.size()) return false;
  for (int64_t size : tensor.sizes) {
    if (size < 0) return false;
  }
  for (int64_t stride : tensor.strides) {
    if (stride < 0) return false;
  }
  int64_t end = view_end(tensor.storage_offset, tensor.sizes, tensor.strides);
  int64_t elements = untyped ? count / dtype_size(tensor.dtype) : count;
  return end >= 0 && end <= elements;
}

}  // namespace

bool match_tensor_pickle(Bytes pickle, TensorPickle* tensor) {
  Matcher in(pickle);
  if (!in.literal(kProtocol) || !in.literal(kRebuild)) return false;
  bool untyped = in.literal("3\n");
  if (!untyped && !in.literal("2\n")) return false;
  in.put();
  int64_t count = 0;
  if (!in.opcode(kMark) || !match_storage(in, untyped, tensor, &count)) return false;
  if (!in.integer(&tensor->storage_offset) || !in.integers(&tensor->sizes) || !in.integers(&tensor->strides))
    return false;
  if (!in.opcode(kNewFalse) && !in.opcode(kNewTrue)) return false;
  if (!in.literal(kOrderedDict)) return false;
  in.put();
  if (!in.opcode(kEmptyTuple) || !in.opcode(kReduce)) return false;
  in.put();
  if (untyped) {
    std::string_view name;
    if (!in.literal("ctorch\n") || !in.line(&name)) return false;
    std::optional<DType> dtype = dtype_from_name(name);
    if (!dtype || !dtype_info(*dtype).in_torch) return false;
    tensor->dtype = *dtype;
    in.put();
  }
  if (!in.opcode(kTuple)) return false;
  in.put();
  if (!in.opcode(kReduce)) return false;
  in.put();
  if (!in.opcode(kStop)) return false;
  if (!is_valid(*tensor, count, untyped)) return false;
  if (untyped) {
    tensor->storage_bytes = count;
    return true;
  }
  return checked_mul(count, dtype_size(tensor->dtype), &tensor->storage_bytes);
}

namespace {

class Encoder {
 public:
  explicit Encoder(ByteVector& out) : out_(out) {}

  void text(std::string_view text) {
    Bytes bytes = as_bytes(text);
    out_.insert(out_.end(), bytes.begin(), bytes.end());
  }
  void opcode(char code) { out_.push_back(static_cast<std::byte>(code)); }
  void put() {
    opcode(kBinPut);
    opcode(next_memo_++);
  }
  // Requires value >= 0.
  void integer(int64_t value) {
    if (value < 256) return number(kBinInt1, value, 1);
    if (value < 65536) return number(kBinInt2, value, 2);
    if (value <= INT32_MAX) return number(kBinInt, value, 4);
    int length = (64 - __builtin_clzll(static_cast<uint64_t>(value))) / 8 + 1;  // room for the sign
    opcode(kLong1);
    number(static_cast<char>(length), value, length);
  }
  void integers(DimsView values) {
    if (values.empty()) return opcode(kEmptyTuple);
    if (values.size() > 3) opcode(kMark);
    for (int64_t value : values) integer(value);
    opcode(values.size() > 3 ? kTuple : static_cast<char>(kTuple1 + static_cast<int>(values.size()) - 1));
    put();
  }

 private:
  void number(char code, int64_t value, int length) {
    opcode(code);
    const auto* bytes = reinterpret_cast<const std::byte*>(&value);
    out_.insert(out_.end(), bytes, bytes + length);
  }

  ByteVector& out_;
  char next_memo_ = 0;
};

}  // namespace

void append_tensor_pickle(ByteVector& out, DType dtype, DimsView sizes) {
  const DTypeInfo& info = dtype_info(dtype);
  if (!info.in_torch) {
    throw FormatError(ErrorCode::kUnsupported, fmt::format("torch has no dtype {}", info.name));
  }
  bool untyped = info.storage.empty();
  int64_t count = num_elements(sizes) * (untyped ? dtype_size(dtype) : 1);
  Encoder to(out);
  to.text(kProtocol);
  to.text(kRebuild);
  to.text(untyped ? "3\n" : "2\n");
  to.put();
  to.opcode(kMark);
  to.opcode(kMark);
  to.text(kStorageTag);
  to.put();
  if (untyped) {
    to.text(kUntypedStorage);
  } else {
    to.text(kTypedStorage);
    to.text(info.storage);
    to.opcode('\n');
  }
  to.put();
  to.text(kFirstKey);
  to.put();
  to.text(kCpu);
  to.put();
  to.integer(count);
  to.opcode(kTuple);
  to.put();
  to.opcode('Q');
  to.integer(0);
  to.integers(sizes);
  to.integers(row_major_strides(sizes));
  to.opcode(kNewFalse);
  to.text(kOrderedDict);
  to.put();
  to.opcode(kEmptyTuple);
  to.opcode(kReduce);
  to.put();
  if (untyped) {
    to.text("ctorch\n");
    to.text(info.name);
    to.opcode('\n');
    to.put();
  }
  to.opcode(kTuple);
  to.put();
  to.opcode(kReduce);
  to.put();
  to.opcode(kStop);
}

int64_t view_end(int64_t storage_offset, DimsView sizes, DimsView strides) {
  int64_t last = storage_offset;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == 0) return 0;
  }
  for (size_t d = 0; d < sizes.size(); ++d) {
    int64_t step = 0;
    if (!checked_mul(sizes[d] - 1, strides[d], &step) || !checked_add(last, step, &last)) return -1;
  }
  return checked_add(last, 1, &last) ? last : -1;
}

bool is_row_major(DimsView sizes, DimsView strides) {
  int64_t expected = 1;
  for (size_t d = sizes.size(); d-- > 0;) {
    if (sizes[d] == 1) continue;
    if (strides[d] != expected) return false;
    if (!checked_mul(expected, sizes[d], &expected)) return false;
  }
  return true;
}

}  // namespace milepost::torch_zip
