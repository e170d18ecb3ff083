// TokenReader: the pickle opcodes of a `.metadata` file through a small window, with a memo of four bytes an
// entry.
//
// It has no stack and makes no values. Its caller (dcp_metadata_fast.cc) knows what comes next and says for
// each thing that it reads what a later memo reference to it shall mean: a Token. Whatever is not as asked
// throws Unusual, upon which the caller gives up and the general pickle machine takes over; so nothing here
// explains itself.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "format/dcp_names.h"
#include "format/pickle_opcodes.h"
#include "milepost/base/bytes.h"
#include "milepost/tensor/dtype.h"

namespace milepost::dcp {

// The pickle is not of the common shape. It may well be valid.
struct Unusual {};

enum class Tag : uint32_t {
  kOpaque,        // something whose second use the fast reader does not understand
  kWord,          // index: Word
  kText,          // index: TokenReader::text()
  kClass,         // index: Class
  kDType,         // index: DType
  kProperties,    // TensorProperties; index: their DType
  kLayout,        // torch.strided
  kMemoryFormat,  // any memory format
  kTensor,        // the name of a tensor of the catalog
  kObject,        // the name of an object of the catalog
  kFile,          // the path of a file of the catalog
  kShape,         // the torch.Size of a tensor; index: tensor
  kOffsets,       // a chunk's offsets; index: chunk
  kSizes,         // a chunk's sizes; index: chunk
};

class Token {
 public:
  static constexpr int64_t kMaxIndex = (int64_t{1} << 28) - 1;

  Token() = default;
  // Requires index <= kMaxIndex.
  Token(Tag tag, int64_t index) : bits_(static_cast<uint32_t>(tag) << 28 | static_cast<uint32_t>(index)) {}
  explicit Token(Word word) : Token(Tag::kWord, static_cast<int64_t>(word)) {}

  Tag tag() const { return static_cast<Tag>(bits_ >> 28); }
  int64_t index() const { return bits_ & 0x0fffffff; }
  bool is(Class which) const { return *this == Token(Tag::kClass, static_cast<int64_t>(which)); }
  friend bool operator==(const Token&, const Token&) = default;

 private:
  uint32_t bits_ = 0;
};

// Up to eight opcodes without arguments that mostly come one after another, compared at once.
struct OpcodeRun {
  template <typename... Opcodes>
  explicit constexpr OpcodeRun(Opcodes... opcodes) : length(sizeof...(opcodes)) {
    for (const uint8_t opcode : {static_cast<uint8_t>(opcodes)...}) {
      bytes |= uint64_t{opcode} << bits;
      mask |= uint64_t{0xff} << bits;
      bits += 8;
    }
  }
  uint64_t bytes = 0, mask = 0;
  int64_t length;
  int bits = 0;
};

class TokenReader {
 public:
  // `source` must outlive the reader. Cost: one window of memory. Here and below, StorageError of the source
  // passes.
  explicit TokenReader(const ByteSource& source);

  // The pickle's start: `PROTO`, 2 to 5.
  void expect_protocol();

  // The next opcode, which is not consumed. Frames are passed over, where the one before ends.
  uint8_t peek() {
    if (at_ >= safe_end_) [[unlikely]]
      refill(1);
    return *at_;
  }
  // Consumes the opcode that peek() has just shown.
  void take() { ++at_; }
  void expect(uint8_t opcode) {
    if (peek() != opcode) [[unlikely]]
      throw Unusual{};
    ++at_;
  }
  bool take_if(uint8_t opcode) {
    if (peek() != opcode) return false;
    ++at_;
    return true;
  }

  // Stores `token` if the pickle memoises here; returns the memo's index for patch(), or -1.
  int64_t memoize(Token token = {}) {
    if (peek() == pickle::kOpMemoize) [[likely]] {
      ++at_;
      return append(token);
    }
    return put(token);
  }
  void patch(int64_t memo_index, Token token) {
    if (memo_index >= 0)
      memo_[static_cast<size_t>(memo_index >> kBlockBits)][memo_index & (kBlock - 1)] = token;
  }

  // A memo reference, if one is next.
  bool take_get(Token* token) {
    const uint8_t opcode = peek();
    int64_t index;
    if (opcode == pickle::kOpBinGet) {
      index = at_[1];
      at_ += 2;
    } else if (opcode == pickle::kOpLongBinGet) {
      index = load<uint32_t>(at_ + 1);
      at_ += 5;
    } else {
      return false;
    }
    if (index >= memo_size_) [[unlikely]]
      throw Unusual{};
    *token = memo_[static_cast<size_t>(index >> kBlockBits)][index & (kBlock - 1)];
    return true;
  }
  // Whether a text or a memo reference is next.
  bool at_name();

  // A text opcode; the view is valid until the next call. Any bytes: see add_text().
  std::string_view raw_text();
  // Keeps a text, if it is UTF-8, for text(). Requires a text that is not a Word.
  Token add_text(std::string_view text);
  const std::string& text(Token token) const { return texts_[static_cast<size_t>(token.index())]; }
  // Forgets the text again, if it was the last that was added. Requires that nothing in the memo means it.
  void drop_text(Token token);

  // A text (memoised as Word or Text), a memo reference or a GLOBAL. `memo_index`: of a text, else -1.
  Token primary(int64_t* memo_index) {
    Token token;
    *memo_index = -1;
    return take_get(&token) ? token : written_out(memo_index);
  }
  Token primary() {
    int64_t ignored;
    return primary(&ignored);
  }
  // A class or dtype, of which `first` is the first token: itself, or the module's name.
  Token global(Token first);
  Token global() { return global(primary()); }
  void expect_global(Class which, Token first) {
    if (!first.is(which) && !global(first).is(which)) throw Unusual{};
  }
  void expect_global(Class which) { expect_global(which, primary()); }

  // `EMPTY_TUPLE NEWOBJ` after a class; returns the instance's memo index or -1.
  int64_t new_object() {
    expect(pickle::kOpEmptyTuple);
    expect(pickle::kOpNewObj);
    return memoize();
  }
  // The same and the instance's state, a dict, up to its first key; false when no MARK comes before that.
  bool begin_object() {
    static constexpr OpcodeRun kUsual(pickle::kOpEmptyTuple, pickle::kOpNewObj, pickle::kOpMemoize,
                                      pickle::kOpEmptyDict, pickle::kOpMemoize, pickle::kOpMark);
    if (take_run(kUsual)) [[likely]] {
      append({});
      append({});
      return true;
    }
    new_object();
    expect(pickle::kOpEmptyDict);
    memoize();
    return take_if(pickle::kOpMark);
  }
  // `TUPLE1 REDUCE`: a call with the value on top of the stack, whose result is memoised as `result`.
  void call(Token result) {
    static constexpr OpcodeRun kUsual(pickle::kOpTuple1, pickle::kOpMemoize, pickle::kOpReduce,
                                      pickle::kOpMemoize);
    if (take_run(kUsual)) [[likely]] {
      append({});
      append(result);
      return;
    }
    expect(pickle::kOpTuple1);
    memoize();
    expect(pickle::kOpReduce);
    memoize(result);
  }

  int64_t integer() {
    const uint8_t opcode = peek();
    if (opcode == pickle::kOpBinInt1) [[likely]] {
      const int64_t value = at_[1];
      at_ += 2;
      return value;
    }
    return wide_integer();
  }
  bool boolean();

 private:
  static constexpr int kBlockBits = 14;
  static constexpr int64_t kBlock = int64_t{1} << kBlockBits;
  static constexpr int64_t kPadding =
      16;  // zeros after the file's end: longer than any argument that is not counted
  using Block = std::unique_ptr<Token[]>;

  template <typename T>
  static T load(const uint8_t* at) {
    T value;
    std::memcpy(&value, at, sizeof(T));
    return value;
  }

  bool take_run(const OpcodeRun& run) {
    if (at_ >= safe_end_) [[unlikely]]
      refill(1);
    if (((load<uint64_t>(at_) ^ run.bytes) & run.mask) != 0) return false;
    at_ += run.length;
    return true;
  }
  void refill(int64_t wanted);
  void read_more(int64_t wanted);
  void require(int64_t bytes) {
    if (end_ - at_ < bytes) [[unlikely]]
      refill(bytes);
  }
  void skip_frame();
  int64_t position() const { return next_read_ - (end_ - at_); }
  int64_t append(Token token) {
    if ((memo_size_ & (kBlock - 1)) == 0) [[unlikely]]
      add_block();
    last_block_[memo_size_ & (kBlock - 1)] = token;
    return memo_size_++;
  }
  void add_block();
  int64_t put(Token token);
  Token written_out(int64_t* memo_index);
  int64_t wide_integer();
  Token class_of(Token module, Token name) const;
  Token global_opcode();

  const ByteSource& source_;
  int64_t next_read_ = 0;  // in the source
  int64_t frame_end_ = 0;  // in the source: where the present frame ends and the next may begin
  std::vector<uint8_t> window_;
  const uint8_t* at_;
  const uint8_t* end_;  // of the window's bytes that come from the source
  const uint8_t*
      safe_end_;  // up to here an opcode and its argument can be read without a look at end_ or frames

  std::vector<Block> memo_;
  Token* last_block_ = nullptr;
  int64_t memo_size_ = 0;
  std::deque<std::string> texts_;
};

}  // namespace milepost::dcp
