#include "format/dcp_token_reader.h"

#include <algorithm>

#include "format/pickle_text.h"

namespace milepost::dcp {
namespace {

constexpr int64_t kWindow = int64_t{1} << 18;

}  // namespace

TokenReader::TokenReader(const ByteSource& source) : source_(source) {
  window_.resize(static_cast<size_t>(std::min(kWindow, source.size()) + kPadding));
  at_ = end_ = safe_end_ = window_.data();
}

void TokenReader::expect_protocol() {
  expect(pickle::kOpProto);
  const uint8_t protocol = *at_++;
  if (protocol < 2 || protocol > 5) throw Unusual{};
  frame_end_ = position();
  safe_end_ = at_;
}

// Brings at least `wanted` bytes into the window and passes over a frame that begins here.
void TokenReader::refill(int64_t wanted) {
  const bool is_short = end_ - at_ <= kPadding && next_read_ < source_.size();
  if (end_ - at_ < wanted || is_short) read_more(wanted);
  if (position() == frame_end_ && *at_ == pickle::kOpFrame) skip_frame();
  safe_end_ = next_read_ == source_.size() ? end_ : end_ - kPadding;
  const int64_t in_frame = frame_end_ - position();
  if (in_frame > 0 && in_frame < safe_end_ - at_) safe_end_ = at_ + in_frame;
}

void TokenReader::read_more(int64_t wanted) {
  const int64_t left = end_ - at_;  // negative when an argument ran into the padding
  const int64_t unread = source_.size() - next_read_;
  if (left < 0 || wanted - left > unread) throw Unusual{};
  const int64_t capacity = static_cast<int64_t>(window_.size()) - kPadding;
  if (wanted > capacity) {
    std::vector<uint8_t> larger(static_cast<size_t>(wanted + kPadding));
    std::memcpy(larger.data(), at_, static_cast<size_t>(left));
    window_.swap(larger);
  } else if (left > 0) {
    std::memmove(window_.data(), at_, static_cast<size_t>(left));
  }
  const int64_t room = static_cast<int64_t>(window_.size()) - kPadding - left;
  const int64_t count = std::min(room, unread);
  uint8_t* const begin = window_.data();
  source_.read_at(next_read_, std::as_writable_bytes(std::span(begin + left, static_cast<size_t>(count))));
  next_read_ += count;
  at_ = begin;
  end_ = begin + left + count;
  std::memset(begin + left + count, 0, kPadding);
}

// Frames follow each other without gaps (but for texts longer than a frame, after which they are Unusual).
void TokenReader::skip_frame() {
  if (end_ - at_ < kPadding) read_more(std::min<int64_t>(kPadding, end_ - at_ + source_.size() - next_read_));
  const auto length = load<uint64_t>(at_ + 1);
  at_ += 9;
  const int64_t rest = source_.size() - position();
  if (rest <= 0 || length == 0 || length > static_cast<uint64_t>(rest)) throw Unusual{};
  frame_end_ = position() + static_cast<int64_t>(length);
}

void TokenReader::add_block() {
  memo_.push_back(std::make_unique_for_overwrite<Token[]>(kBlock));
  last_block_ = memo_.back().get();
}

// Picklers number their memo in order; other numbers would need a map.
int64_t TokenReader::put(Token token) {
  int64_t index;
  if (peek() == pickle::kOpBinPut) {
    index = at_[1];
    at_ += 2;
  } else if (peek() == pickle::kOpLongBinPut) {
    index = load<uint32_t>(at_ + 1);
    at_ += 5;
  } else {
    return -1;
  }
  if (index != memo_size_) throw Unusual{};
  return append(token);
}

bool TokenReader::at_name() {
  const uint8_t opcode = peek();
  return opcode == pickle::kOpBinGet || opcode == pickle::kOpLongBinGet ||
         opcode == pickle::kOpShortBinUnicode || opcode == pickle::kOpBinUnicode ||
         opcode == pickle::kOpBinUnicode8;
}

std::string_view TokenReader::raw_text() {
  uint64_t length;
  int64_t header;
  switch (peek()) {
    case pickle::kOpShortBinUnicode:
      header = 2;
      length = at_[1];
      break;
    case pickle::kOpBinUnicode:
      header = 5;
      length = load<uint32_t>(at_ + 1);
      break;
    case pickle::kOpBinUnicode8:
      header = 9;
      length = load<uint64_t>(at_ + 1);
      break;
    default:
      throw Unusual{};
  }
  if (length > static_cast<uint64_t>(source_.size())) throw Unusual{};
  require(header + static_cast<int64_t>(length));
  const auto* begin = reinterpret_cast<const char*>(at_ + header);
  at_ += header + static_cast<int64_t>(length);
  return {begin, static_cast<size_t>(length)};
}

Token TokenReader::add_text(std::string_view text) {
  if (!pickle::is_utf8(text) || static_cast<int64_t>(texts_.size()) > Token::kMaxIndex) throw Unusual{};
  texts_.emplace_back(text);
  return {Tag::kText, static_cast<int64_t>(texts_.size()) - 1};
}

void TokenReader::drop_text(Token token) {
  if (token.tag() == Tag::kText && token.index() + 1 == static_cast<int64_t>(texts_.size())) {
    texts_.pop_back();
  }
}

Token TokenReader::written_out(int64_t* memo_index) {
  if (peek() == pickle::kOpGlobal) return global_opcode();
  const std::string_view text = raw_text();
  const std::optional<Word> word = find_word(text);
  const Token token = word ? Token(*word) : add_text(text);
  *memo_index = memoize(token);
  return token;
}

Token TokenReader::class_of(Token module, Token name) const {
  if (module.tag() != Tag::kWord) throw Unusual{};
  const auto module_word = static_cast<Word>(module.index());
  if (name.tag() == Tag::kWord) {
    const std::optional<Class> which = find_class(module_word, static_cast<Word>(name.index()));
    if (which) return {Tag::kClass, static_cast<int64_t>(*which)};
  } else if (name.tag() == Tag::kText && module_word == Word::kTorchModule) {
    const std::optional<DType> dtype = dtype_from_name(text(name));
    if (dtype && dtype_info(*dtype).in_torch) return {Tag::kDType, static_cast<int64_t>(*dtype)};
  }
  throw Unusual{};
}

// GLOBAL: two lines of text (protocols 2 and 3).
Token TokenReader::global_opcode() {
  const auto line = [&](int64_t from) {
    for (int64_t length = 0; length < 100; ++length) {
      require(from + length + 1);
      if (at_[from + length] == '\n') return length;
    }
    throw Unusual{};
  };
  const int64_t module_length = line(1);
  const int64_t name_length = line(module_length + 2);
  const auto* begin = reinterpret_cast<const char*>(at_ + 1);
  const std::string_view module(begin, static_cast<size_t>(module_length));
  const std::string_view name(begin + module_length + 1, static_cast<size_t>(name_length));
  const std::optional<Word> module_word = find_word(module), name_word = find_word(name);
  if (!module_word) throw Unusual{};
  const Token name_token = name_word ? Token(*name_word) : add_text(name);
  const Token token = class_of(Token(*module_word), name_token);
  drop_text(name_token);
  at_ += module_length + name_length + 3;
  memoize(token);
  return token;
}

Token TokenReader::global(Token first) {
  if (first.tag() == Tag::kClass || first.tag() == Tag::kDType) return first;
  const Token name = primary();
  expect(pickle::kOpStackGlobal);
  const Token token = class_of(first, name);
  memoize(token);
  return token;
}

int64_t TokenReader::wide_integer() {
  switch (peek()) {
    case pickle::kOpBinInt2: {
      const int64_t value = load<uint16_t>(at_ + 1);
      at_ += 3;
      return value;
    }
    case pickle::kOpBinInt: {
      const int64_t value = load<int32_t>(at_ + 1);
      at_ += 5;
      return value;
    }
    case pickle::kOpLong1: {
      const int64_t length = at_[1];
      if (length > 8) throw Unusual{};
      uint64_t value = 0;
      std::memcpy(&value, at_ + 2, static_cast<size_t>(length));
      const auto unused_bits = static_cast<int>(64 - 8 * length);
      at_ += 2 + length;
      return length == 0 ? 0 : static_cast<int64_t>(value << unused_bits) >> unused_bits;
    }
    default:
      throw Unusual{};
  }
}

bool TokenReader::boolean() {
  if (take_if(pickle::kOpNewFalse)) return false;
  expect(pickle::kOpNewTrue);
  return true;
}

}  // namespace milepost::dcp
