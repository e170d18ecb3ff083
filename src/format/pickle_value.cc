#include <algorithm>
#include <utility>

#include "format/pickle_arena.h"

namespace milepost::pickle {

std::string_view Value::text() const {
  if (kind() == Kind::kStorage) return Layout::storage(*this)->key;
  assert(kind() == Kind::kString || kind() == Kind::kBytes || kind() == Kind::kByteArray ||
         kind() == Kind::kPath || kind() == Kind::kDevice || kind() == Kind::kBigInt);
  return {text_, Layout::length(*this)};
}

std::string_view Value::class_name() const {
  switch (kind()) {
    case Kind::kObject:
      return Layout::object(*this)->type->text;
    case Kind::kGlobal:
    case Kind::kOpaque:
      return Layout::global(*this)->text;
    default:
      break;
  }
  assert(kind() == Kind::kDict);
  const DictExtra* extra = Layout::dict(*this)->extra;
  return extra == nullptr || extra->type == nullptr ? std::string_view() : extra->type->text;
}

DType Value::dtype() const {
  assert(kind() == Kind::kDType);
  return static_cast<DType>(Layout::detail(*this));
}

int64_t Value::size() const {
  if (kind() == Kind::kDict) return Layout::list(*this)->size / 2;
  if (is_list_like(kind())) return Layout::list(*this)->size;
  assert(is_tuple_like(kind()));
  return static_cast<int64_t>(Layout::length(*this));
}

const Value* Value::items() const { return is_tuple_like(kind()) ? items_ : Layout::list(*this)->items; }

const Value& Value::item(int64_t i) const {
  assert(kind() != Kind::kDict && i >= 0 && i < size());
  return items()[i];
}

const Value& Value::key(int64_t i) const {
  assert(kind() == Kind::kDict && i >= 0 && i < size());
  return items()[2 * i];
}

const Value& Value::value(int64_t i) const {
  assert(kind() == Kind::kDict && i >= 0 && i < size());
  return items()[2 * i + 1];
}

const Value* Value::find(std::string_view string_key) const {
  for (int64_t i = 0; i < size(); ++i) {
    const Value& k = key(i);
    if (k.kind() == Kind::kString && k.text() == string_key) return &value(i);
  }
  return nullptr;
}

const Value* Value::state() const {
  if (kind() == Kind::kDict) {
    const DictExtra* extra = Layout::dict(*this)->extra;
    return extra != nullptr && extra->has_attributes ? &extra->attributes : nullptr;
  }
  assert(kind() == Kind::kObject);
  const ObjectBody* body = Layout::object(*this);
  return body->has_state ? &body->state : nullptr;
}

const TensorRef& Value::tensor() const {
  assert(kind() == Kind::kTensor);
  return *static_cast<const TensorRef*>(body_);
}

Children children(const Value& v) {
  Children result;
  const Kind kind = v.kind();
  if (is_tuple_like(kind)) {
    const size_t count = Layout::length(v);
    if (count != 0) result.items = {&v.item(0), count};
  } else if (is_list_like(kind) || kind == Kind::kDict) {
    const ListBody* body = Layout::list(v);
    result.items = {body->items, body->size};
    if (kind == Kind::kDict && Layout::dict(v)->extra != nullptr) {
      const DictExtra* extra = Layout::dict(v)->extra;
      result.factory = &extra->factory;
      if (extra->has_attributes) result.attributes = &extra->attributes;
    }
  } else if (kind == Kind::kObject) {
    result.attributes = v.state();
  }
  return result;
}

Mark* mark_of(const Value& v) {
  const Kind kind = v.kind();
  if (is_tuple_like(kind)) return Layout::length(v) == 0 ? nullptr : &Layout::head(v)->mark;
  if (is_list_like(kind) || kind == Kind::kDict) return &Layout::list(v)->mark;
  if (kind == Kind::kObject) return &Layout::object(v)->mark;
  return nullptr;
}

// ---- Arena ----

std::byte* Arena::take_slow(size_t size) {
  charge(size);
  if (size > next_block_ / 4) {  // a block of its own; the current one stays in use
    blocks_.push_back(std::make_unique_for_overwrite<std::byte[]>(size));
    return blocks_.back().get();
  }
  blocks_.push_back(std::make_unique_for_overwrite<std::byte[]>(next_block_));
  front_ = blocks_.back().get() + size;
  back_ = blocks_.back().get() + next_block_;
  next_block_ = std::min(2 * next_block_, kLargestBlock);
  return front_ - size;
}

void Arena::reserve(ListBody* list, size_t more) {
  const size_t needed = list->size + more;
  if (needed <= list->capacity) return;
  if (needed > UINT32_MAX) refuse();
  // The first batch is usually the only one: exactly as large, later ones double.
  const size_t capacity = std::min<size_t>(std::max<size_t>(needed, size_t{2} * list->capacity), UINT32_MAX);
  const size_t grown = (capacity - list->capacity) * sizeof(Value);
  const auto* end = reinterpret_cast<const std::byte*>(list->items + list->capacity);
  if (list->capacity != 0 && end == front_ && static_cast<size_t>(back_ - front_) >= grown) {
    take(grown);
  } else {
    auto* items = reinterpret_cast<Value*>(take(capacity * sizeof(Value)));
    if (list->size != 0) std::memcpy(static_cast<void*>(items), list->items, list->size * sizeof(Value));
    release(list->items, list->capacity * sizeof(Value));
    list->items = items;
  }
  list->capacity = static_cast<uint32_t>(capacity);
}

void Arena::release(const void* array, size_t size) {
  if (size <= kLargestBlock / 4) return;
  const auto is_it = [&](const auto& block) { return block.get() == array; };
  const auto block = std::find_if(blocks_.begin(), blocks_.end(), is_it);
  if (block == blocks_.end()) return;  // it found room in a shared one
  blocks_.erase(block);
  used_ -= static_cast<int64_t>(size);
}

Value* Arena::take_items(int64_t count) {
  if (count == 0) return nullptr;
  std::byte* const place = take(sizeof(TupleHead) + static_cast<size_t>(count) * sizeof(Value));
  new (place) TupleHead();
  return reinterpret_cast<Value*>(place + sizeof(TupleHead));
}

TensorRef* Arena::add_tensor(TensorRef ref) {
  charge(sizeof(TensorRef) + (ref.sizes.size() + ref.strides.size()) * sizeof(int64_t));
  tensors_.push_back(std::move(ref));
  return &tensors_.back();
}

void Arena::refuse() const {
  throw FormatError(
      ErrorCode::kTooLarge,
      "the pickle's values take more than " + std::to_string(limit_) + " bytes of memory",
      "no pickler writes so many values into so few bytes; raise the limit if the file is trusted");
}

// ---- Document ----

Document::Document() = default;
Document::Document(std::unique_ptr<Arena> arena) : arena_(std::move(arena)) {}
Document::Document(Document&&) noexcept = default;
Document& Document::operator=(Document&&) noexcept = default;
Document::~Document() = default;

const Value& Document::root() const {
  static constexpr Value kNone{};
  return arena_ == nullptr ? kNone : arena_->root;
}
int64_t Document::bytes_read() const { return arena_ == nullptr ? 0 : arena_->bytes_read; }
int64_t Document::memory_bytes() const { return arena_ == nullptr ? 0 : arena_->used(); }

}  // namespace milepost::pickle
