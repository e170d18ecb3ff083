#include "format/dcp_opcode_writer.h"

#include <cstring>
#include <limits>

namespace milepost::dcp {
namespace {

constexpr size_t kBuffer = size_t{64} << 10;

template <typename T>
uint8_t* store(uint8_t* at, T value) {
  std::memcpy(at, &value, sizeof(T));
  return at + sizeof(T);
}

}  // namespace

OpcodeWriter::OpcodeWriter(ByteSink& sink) : sink_(sink), buffer_(kBuffer) {
  at_ = buffer_.data();
  end_ = at_ + kBuffer;
  words_.fill(-1);
  classes_.fill(-1);
  dtypes_.fill(-1);
  op(pickle::kOpProto);
  op(4);
}

void OpcodeWriter::append(Bytes bytes) {
  if (is_hashing_) hash_.update(bytes);
  sink_.append(bytes);
}

void OpcodeWriter::flush() {
  append(std::as_bytes(std::span(buffer_.data(), static_cast<size_t>(at_ - buffer_.data()))));
  at_ = buffer_.data();
}

void OpcodeWriter::finish() {
  op(pickle::kOpStop);
  flush();
}

Sha256Digest OpcodeWriter::digest() {
  flush();
  is_hashing_ = false;
  return hash_.finish();
}

void OpcodeWriter::get(int64_t memo_number) {
  reserve(5);
  if (memo_number < 256) {
    *at_++ = pickle::kOpBinGet;
    *at_++ = static_cast<uint8_t>(memo_number);
  } else {
    *at_++ = pickle::kOpLongBinGet;
    at_ = store(at_, static_cast<uint32_t>(memo_number));
  }
}

void OpcodeWriter::integer(int64_t value) {
  reserve(10);
  if (value >= 0 && value < 1 << 8) {
    *at_++ = pickle::kOpBinInt1;
    *at_++ = static_cast<uint8_t>(value);
  } else if (value >= 0 && value < 1 << 16) {
    *at_++ = pickle::kOpBinInt2;
    at_ = store(at_, static_cast<uint16_t>(value));
  } else if (value >= std::numeric_limits<int32_t>::min() && value <= std::numeric_limits<int32_t>::max()) {
    *at_++ = pickle::kOpBinInt;
    at_ = store(at_, static_cast<int32_t>(value));
  } else {
    // As few bytes of two's complement as keep the sign.
    uint8_t length = 8;
    while (value << (72 - 8 * length) >> (72 - 8 * length) == value) --length;
    *at_++ = pickle::kOpLong1;
    *at_++ = length;
    std::memcpy(at_, &value, length);
    at_ += length;
  }
}

void OpcodeWriter::text(std::string_view utf8) {
  reserve(9);
  if (utf8.size() < 256) {
    *at_++ = pickle::kOpShortBinUnicode;
    *at_++ = static_cast<uint8_t>(utf8.size());
  } else if (utf8.size() <= std::numeric_limits<uint32_t>::max()) {
    *at_++ = pickle::kOpBinUnicode;
    at_ = store(at_, static_cast<uint32_t>(utf8.size()));
  } else {
    *at_++ = pickle::kOpBinUnicode8;
    at_ = store(at_, static_cast<uint64_t>(utf8.size()));
  }
  if (utf8.size() > static_cast<size_t>(end_ - at_)) {
    flush();
    if (utf8.size() > kBuffer) return append(as_bytes(utf8));
  }
  if (!utf8.empty()) std::memcpy(at_, utf8.data(), utf8.size());
  at_ += utf8.size();
}

void OpcodeWriter::word(Word word) {
  int64_t& memo_number = words_[static_cast<size_t>(word)];
  if (memo_number >= 0) return get(memo_number);
  text(word_text(word));
  memo_number = memoize();
}

void OpcodeWriter::named(int64_t* memo_number, Word module, std::string_view name) {
  if (*memo_number >= 0) return get(*memo_number);
  word(module);
  text(name);
  op(pickle::kOpStackGlobal);
  *memo_number = memoize();
}

void OpcodeWriter::global(Class which) {
  const ClassName name = class_name(which);
  named(&classes_[static_cast<size_t>(which)], name.module, word_text(name.name));
}

void OpcodeWriter::dtype(DType dtype) {
  named(&dtypes_[static_cast<size_t>(dtype)], Word::kTorchModule, dtype_name(dtype));
}

void OpcodeWriter::begin_object(Class which) {
  global(which);
  reserve(2);
  *at_++ = pickle::kOpEmptyTuple;
  *at_++ = pickle::kOpNewObj;
}

void OpcodeWriter::begin_state(Class which) {
  begin_object(which);
  reserve(2);
  *at_++ = pickle::kOpEmptyDict;
  *at_++ = pickle::kOpMark;
}

void OpcodeWriter::end_state() {
  reserve(2);
  *at_++ = pickle::kOpSetItems;
  *at_++ = pickle::kOpBuild;
}

void OpcodeWriter::tuple_of(size_t count) {
  if (count > 3) {
    op(pickle::kOpTuple);
  } else if (count == 0) {
    op(pickle::kOpEmptyTuple);
  } else {
    op(static_cast<uint8_t>(pickle::kOpTuple1 + count - 1));
  }
}

void OpcodeWriter::size(DimsView dims) {
  global(Class::kSize);
  mark_for_tuple_of(dims.size());
  for (int64_t dim : dims) integer(dim);
  tuple_of(dims.size());
  reserve(2);
  *at_++ = pickle::kOpTuple1;
  *at_++ = pickle::kOpReduce;
}

}  // namespace milepost::dcp
