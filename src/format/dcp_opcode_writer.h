// OpcodeWriter: pickle opcodes of protocol 4 to a sink through a small buffer, with the memo that a writer
// needs.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "format/dcp_names.h"
#include "format/pickle_opcodes.h"
#include "milepost/base/bytes.h"
#include "milepost/base/checksum.h"
#include "milepost/tensor/box.h"
#include "milepost/tensor/dtype.h"

namespace milepost::dcp {

// `sink` must outlive it; errors are the sink's. finish() must be called: a destructor writes nothing.
class OpcodeWriter {
 public:
  explicit OpcodeWriter(ByteSink& sink);

  void op(uint8_t opcode) {
    reserve(1);
    *at_++ = opcode;
  }
  // Gives the value on top of the stack the next memo number, which is returned.
  int64_t memoize() {
    op(pickle::kOpMemoize);
    return memo_size_++;
  }
  void get(int64_t memo_number);

  void integer(int64_t value);
  void text(std::string_view utf8);
  // A fixed word, dtype or class: written out and memoised the first time.
  void word(Word word);
  void global(Class which);
  void dtype(DType dtype);
  // `class () NEWOBJ { (`: an instance and its state, which end_state() closes.
  void begin_object(Class which);
  void begin_state(Class which);
  void end_state();
  // A tuple of the `count` values that are written between the two calls.
  void mark_for_tuple_of(size_t count) {
    if (count > 3) op(pickle::kOpMark);
  }
  void tuple_of(size_t count);
  void size(DimsView dims);  // torch.Size

  // SHA-256 of all that was written so far. May be called once.
  Sha256Digest digest();
  void finish();

 private:
  void reserve(int64_t bytes) {
    if (end_ - at_ < bytes) [[unlikely]]
      flush();
  }
  void flush();
  void append(Bytes bytes);
  void named(int64_t* memo_number, Word module, std::string_view name);

  ByteSink& sink_;
  std::vector<uint8_t> buffer_;
  uint8_t* at_;
  uint8_t* end_;
  Sha256 hash_;
  bool is_hashing_ = true;
  int64_t memo_size_ = 0;
  std::array<int64_t, kWords.size()> words_;
  std::array<int64_t, kClassNames.size()> classes_;
  std::array<int64_t, kNumDTypes> dtypes_;
};

}  // namespace milepost::dcp
