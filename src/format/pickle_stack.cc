// The machine's input, stack and memo, and the values that need no class.
#include <charconv>
#include <cstring>

#include "format/pickle_machine.h"
#include "format/pickle_text.h"

namespace milepost::pickle {

void fail(ErrorCode code, std::string what, std::string hint) {
  throw FormatError(code, std::move(what), std::move(hint));
}
void fail_bad(std::string what) {
  fail(ErrorCode::kBadFormat, std::move(what), "the file is damaged, or it is no pickle");
}

// ---- Memo ----

void Memo::put_out_of_order(uint64_t index, const Value& value) {
  if (index < dense_.size()) {
    if (Layout::is_absent(dense_[index])) --num_absent_;
    dense_[index] = value;
    sparse_.erase(index);
  } else if (index <= 2 * dense_.size() + 64 && num_absent_ <= dense_.size() / 2 + 64) {
    num_absent_ += index - dense_.size();
    dense_.resize(index, Layout::absent());
    dense_.push_back(value);
    sparse_.erase(index);
  } else {
    sparse_[index] = value;
  }
}

const Value& Memo::get_sparse(uint64_t index) const {
  const auto found = sparse_.find(index);
  if (found == sparse_.end()) fail_bad("nothing was stored under memo number " + std::to_string(index));
  return found->second;
}

// ---- input ----

Machine::Machine(Bytes bytes, const Options& options)
    : begin_(bytes.data()),
      next_(begin_),
      end_(begin_ + bytes.size()),
      opcode_(begin_),
      options_(options),
      work_(kWorkPerByte * static_cast<int64_t>(bytes.size()) + (1 << 20)) {
  const auto size = static_cast<int64_t>(bytes.size());
  const int64_t limit = options.max_memory_bytes != 0 ? options.max_memory_bytes : 48 * size + (1 << 20);
  arena_ = std::make_unique<Arena>(limit);
}

std::string_view Machine::take(uint64_t size) {
  if (static_cast<uint64_t>(end_ - next_) < size) {
    fail(ErrorCode::kTruncated,
         "the pickle ends early (want " + std::to_string(size) + " bytes, " + std::to_string(end_ - next_) +
             " left)",
         "the file is cut short or a length in it is damaged: copy it again or restore it from a backup");
  }
  const std::string_view taken(reinterpret_cast<const char*>(next_), size);
  next_ += size;
  return taken;
}

std::string_view Machine::line() {
  const auto left = static_cast<size_t>(end_ - next_);
  const void* newline = left == 0 ? nullptr : std::memchr(next_, '\n', left);
  if (newline == nullptr) return take(left + 1);  // throws
  std::string_view text = take(static_cast<size_t>(static_cast<const std::byte*>(newline) - next_) + 1);
  text.remove_suffix(1);
  return text;
}

uint64_t Machine::decimal_line() {
  const std::string_view text = line();
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    fail_bad("'" + printable(text, 40) + "' is no memo number");
  }
  return value;
}

// ---- stack ----

Value Machine::pop() {
  if (stack_.size() <= floor_) fail_bad("the opcode takes a value from an empty stack");
  const Value value = stack_.back();
  stack_.pop_back();
  return value;
}

Value& Machine::top() {
  if (stack_.size() <= floor_) fail_bad("the opcode wants a value on an empty stack");
  return stack_.back();
}

void Machine::push_mark() {
  marks_.push_back(stack_.size());
  floor_ = stack_.size();
}

size_t Machine::pop_mark() {
  if (marks_.empty()) fail_bad("the opcode wants a mark and there is none");
  const size_t first = marks_.back();
  marks_.pop_back();
  floor_ = marks_.empty() ? 0 : marks_.back();
  return first;
}

void Machine::pop_one() {
  if (!marks_.empty() && stack_.size() == marks_.back()) {
    pop_mark();
  } else {
    pop();
  }
}

// ---- values ----

namespace {

void append_values(Arena* arena, ListBody* body, std::span<const Value> items) {
  if (items.empty()) return;
  arena->reserve(body, items.size());
  std::memcpy(static_cast<void*>(body->items + body->size), items.data(), items.size_bytes());
  body->size += static_cast<uint32_t>(items.size());
}

void check_hashable(const Value& key) {
  switch (key.kind()) {
    case Kind::kList:
    case Kind::kDict:
    case Kind::kSet:
    case Kind::kByteArray:
      fail_bad("a list, dict, set or bytearray is used as a key");
    default:
      break;
  }
}

}  // namespace

void Machine::push_string(std::string_view utf8) {
  if (!is_utf8(utf8)) fail_bad("a text is not UTF-8");
  push(Layout::text(Kind::kString, arena_->copy_text(utf8)));
}

void Machine::push_native_string(std::string_view bytes) {
  push(Layout::text(is_utf8(bytes) ? Kind::kString : Kind::kBytes, arena_->copy_text(bytes)));
}

void Machine::push_big(const Long& number) {
  if (number.decimal.empty()) {
    push(Layout::integer(number.value));
  } else {
    push(Layout::text(Kind::kBigInt, arena_->copy_text(number.decimal)));
  }
}

void Machine::push_long(size_t size) {
  if (size > kMaxLongBytes) {
    fail(ErrorCode::kTooLarge, "an integer of " + std::to_string(size) + " bytes (at most " +
                                   std::to_string(kMaxLongBytes) + " are read)");
  }
  push_big(long_from_bytes(milepost::as_bytes(take(size))));
}

void Machine::push_long_text(std::string_view text) {
  if (text.size() > kMaxLongBytes * 5 / 2) {
    fail(ErrorCode::kTooLarge, "an integer of " + std::to_string(text.size()) + " digits (at most " +
                                   std::to_string(kMaxLongBytes * 5 / 2) + " are read)");
  }
  const auto number = long_from_text(text);
  if (!number) fail_bad("'" + printable(text, 40) + "' is no integer");
  push_big(*number);
}

void Machine::push_int_line() {
  const std::string_view text = line();
  if (text == "00" || text == "01") return push(Layout::boolean(text == "01"));
  push_long_text(text);
}

void Machine::push_float_line() {
  const std::string_view text = line();
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::invalid_argument || end != text.data() + text.size()) {
    fail_bad("'" + printable(text, 40) + "' is no float");
  }
  if (error == std::errc::result_out_of_range)
    fail_bad("the float '" + printable(text, 40) + "' is out of range");
  push(Layout::floating(value));
}

Value Machine::make_tuple(Kind kind, std::span<const Value> items) {
  const auto count = static_cast<int64_t>(items.size());
  Value* const copy = arena_->take_items(count);
  if (count != 0) std::memcpy(static_cast<void*>(copy), items.data(), items.size_bytes());
  return Layout::tuple(kind, copy, count);
}

void Machine::push_tuple(size_t count) {
  if (stack_.size() - floor_ < count) fail_bad("a tuple wants more values than the stack holds");
  const size_t first = stack_.size() - count;
  const Value tuple = make_tuple(Kind::kTuple, above(first));
  stack_.resize(first);
  push(tuple);
}

Value Machine::make_list(Kind kind, std::span<const Value> items) {
  auto* body = arena_->make<ListBody>();
  const Value list = Layout::with_body(kind, body);
  if (kind == Kind::kSet) {
    add_to_set(list, items);
  } else {
    append(list, items);
  }
  return list;
}

Value Machine::make_frozen_set(std::span<const Value> items) {
  for (const Value& item : items) check_hashable(item);
  const Value set = make_tuple(Kind::kFrozenSet, items);
  if (items.size() < 2) return set;
  Value* const elements = const_cast<Value*>(&set.item(0));
  return Layout::tuple(Kind::kFrozenSet, elements, drop_repeated_items(elements, set.size(), &work_));
}

Value Machine::make_dict(std::span<const Value> keys_and_values, const Global* type) {
  auto* body = arena_->make<DictBody>();
  if (type != nullptr) {
    body->extra = arena_->make<DictExtra>();
    body->extra->type = type;
  }
  const Value dict = Layout::with_body(Kind::kDict, body);
  set_items(dict, keys_and_values);
  return dict;
}

void Machine::append(const Value& list, std::span<const Value> items) {
  if (list.kind() == Kind::kOpaque) return;
  if (list.kind() != Kind::kList) fail_bad("values are appended to something that is no list");
  append_values(arena_.get(), Layout::list(list), items);
}

void Machine::set_items(const Value& dict, std::span<const Value> keys_and_values) {
  if (dict.kind() == Kind::kOpaque) return;
  if (dict.kind() != Kind::kDict) fail_bad("keys are set in something that is no dict");
  if (keys_and_values.size() % 2 != 0) fail_bad("a key without a value");
  for (size_t i = 0; i < keys_and_values.size(); i += 2) check_hashable(keys_and_values[i]);
  append_values(arena_.get(), Layout::list(dict), keys_and_values);
}

void Machine::add_to_set(const Value& set, std::span<const Value> items) {
  if (set.kind() == Kind::kOpaque) return;
  if (set.kind() != Kind::kSet) fail_bad("elements are added to something that is no set");
  for (const Value& item : items) check_hashable(item);
  append_values(arena_.get(), Layout::list(set), items);
}

}  // namespace milepost::pickle
