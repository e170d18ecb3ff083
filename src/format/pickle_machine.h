// The machine that runs a pickle's opcodes over a stack of values. Only the files of `pickle` include this.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "format/pickle_arena.h"
#include "milepost/base/bytes.h"
#include "milepost/format/pickle.h"

namespace milepost::pickle {

[[noreturn]] void fail(ErrorCode code, std::string what, std::string hint = {});
[[noreturn]] void fail_bad(std::string what);  // kBadFormat

// What PUT remembers. Indexes come from the file: those that leave gaps go to a map, so that memory follows
// the number of PUTs and not the largest index.
class Memo {
 public:
  void put(uint64_t index, const Value& value) {
    if (index == dense_.size()) {
      dense_.push_back(value);
    } else {
      put_out_of_order(index, value);
    }
  }
  const Value& get(uint64_t index) const {
    if (index < dense_.size() && !Layout::is_absent(dense_[index])) return dense_[index];
    return get_sparse(index);
  }
  uint64_t count() const { return dense_.size() - num_absent_ + sparse_.size(); }

 private:
  void put_out_of_order(uint64_t index, const Value& value);
  const Value& get_sparse(uint64_t index) const;

  std::vector<Value> dense_;
  std::unordered_map<uint64_t, Value> sparse_;
  uint64_t num_absent_ = 0;
};

class Machine {
 public:
  Machine(Bytes bytes, const Options& options);
  Document run(std::string_view name);

 private:
  // pickle_machine.cc: the loop, stack and memo
  void run_opcodes();
  bool run_uncommon(uint8_t opcode);  // false: unknown
  bool run_text_opcode(uint8_t opcode);
  bool run_refused(uint8_t opcode);

  // The input. Each throws kTruncated when fewer bytes are left.
  std::string_view take(uint64_t size);
  template <typename T>
  T number() {  // little-endian
    T value;
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    return value;
  }
  std::string_view line();
  uint64_t decimal_line();

  void push(const Value& value) { stack_.push_back(value); }
  Value pop();
  Value& top();
  void push_mark();
  // The values above the last mark, which goes; the caller then truncates to `first`.
  size_t pop_mark();
  std::span<const Value> above(size_t first) const { return {stack_.data() + first, stack_.size() - first}; }
  void pop_one();

  void push_string(std::string_view utf8);
  void push_native_string(std::string_view bytes);  // str of Python 2
  void push_bytes(Kind kind, std::string_view bytes) { push(Layout::text(kind, arena_->copy_text(bytes))); }
  void push_long(size_t size);
  void push_long_text(std::string_view text);
  void push_big(const struct Long& number);
  void push_int_line();
  void push_float_line();
  void push_tuple(size_t count);
  Value make_tuple(Kind kind, std::span<const Value> items);
  Value make_list(Kind kind, std::span<const Value> items);
  Value make_frozen_set(std::span<const Value> items);
  Value make_dict(std::span<const Value> keys_and_values, const Global* type);
  void append(const Value& list, std::span<const Value> items);
  void set_items(const Value& dict, std::span<const Value> keys_and_values);
  void add_to_set(const Value& set, std::span<const Value> items);

  // pickle_calls.cc: what classes and functions mean
  Value resolve(std::string_view module, std::string_view name);
  Value resolve_cached(const Value& module, const Value& name);
  Value make_opaque(std::string_view module, std::string_view name);
  Value call(const Value& callable, const Value& args);
  Value new_object(const Value& type, const Value& args);
  void build(const Value& object, const Value& state);
  Value persistent(const Value& id);
  Value make_object(const Global* type, const Value* state);
  Value call_reconstructor(std::span<const Value> args);
  Value call_container(const Global& global, std::span<const Value> args);
  Value call_bytes(Kind kind, std::span<const Value> args);
  Value call_encode(std::span<const Value> args);
  Value call_complex(std::span<const Value> args);
  Value call_path(const Global& global, std::span<const Value> args);
  Value call_device(std::span<const Value> args);
  Value latin1(Kind kind, const Value& text, const Value& encoding);

  // pickle_tensor.cc
  Value rebuild_tensor(std::span<const Value> args, bool dtype_given);
  Value rebuild_parameter(std::span<const Value> args, size_t num_args);

  // Hashing each key once and comparing it about once takes a few steps a byte of the pickle; one that shares
  // long keys by memo takes more. Bounded, as otherwise one long key in a million dicts would cost their
  // product.
  static constexpr int64_t kWorkPerByte = 64;

  const std::byte* begin_;
  const std::byte* next_;
  const std::byte* end_;
  const std::byte* opcode_;  // the one that runs: where errors are
  Options options_;
  int64_t work_;  // steps left
  std::unique_ptr<Arena> arena_;
  std::vector<Value> stack_;
  std::vector<size_t> marks_;
  size_t floor_ = 0;  // the last mark: nothing below it may be popped
  Memo memo_;
  struct ResolvedName {
    const void* module = nullptr;
    const void* name = nullptr;
    Value value;
  };
  std::array<ResolvedName, 16> resolved_;  // by addresses of memoised texts
};

// Ends a read: drops repeated keys, and throws kTooLarge for nesting beyond `max_depth` or when comparing
// keys takes more than `*work` steps of about a byte, which are counted down.
void finish_tree(const Value& root, int max_depth, int64_t* work);
// Drops repeated elements and returns how many stay.
int64_t drop_repeated_items(Value* items, int64_t count, int64_t* work);

}  // namespace milepost::pickle
