// Where a pickle's values live, and how a Value is laid out. Only the files of `pickle` include this.
//
// A Value is a handle: kind, detail and size in one word, and in the other the scalar itself or an address in
// the arena. Tuples and their like are arrays with a TupleHead before them; what can grow or change has a
// body, so that all handles to it see the change. Nothing in the arena but tensors needs destroying: freeing
// it never recurses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "format/pickle_globals.h"
#include "milepost/base/error.h"
#include "milepost/format/pickle.h"

namespace milepost::pickle {

// Used by the walks over a finished tree: unvisited, on the path, or its depth.
using Mark = uint32_t;
inline constexpr Mark kUnvisited = 0;
inline constexpr Mark kOnPath = 0xffffffff;

struct TupleHead {
  Mark mark = kUnvisited;
  uint32_t unused = 0;
};

struct ListBody {  // kList, kSet; small, as an empty list is one byte of pickle
  Value* items = nullptr;
  uint32_t size = 0;  // values: two a pair in dicts
  uint32_t capacity = 0;
  Mark mark = kUnvisited;
};

struct DictExtra {
  const Global* type = nullptr;  // nullptr: dict itself
  Value factory;                 // of a defaultdict
  Value attributes;
  bool has_attributes = false;
};

struct DictBody : ListBody {
  DictExtra* extra = nullptr;
};

struct ObjectBody {
  const Global* type = nullptr;
  Value state;
  Mark mark = kUnvisited;
  bool has_state = false;
};

struct StorageBody {
  std::string_view key;
  int64_t size_bytes = 0;
  DType dtype = DType::kUInt8;
  bool untyped = false;
};

// Memory in blocks, given back at once. Throws FormatError kTooLarge beyond its limit.
class Arena {
 public:
  explicit Arena(int64_t limit_bytes) : limit_(limit_bytes) {}
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Objects are taken from the front of a block, texts from its back: no padding between either.
  std::byte* take(size_t size) {
    size = (size + 7) & ~size_t{7};
    if (static_cast<size_t>(back_ - front_) < size) return take_slow(size);
    charge(size);
    std::byte* const place = front_;
    front_ += size;
    return place;
  }

  char* take_text(size_t size) {
    if (static_cast<size_t>(back_ - front_) < size) return reinterpret_cast<char*>(take(size));
    charge(size);
    back_ -= size;
    return reinterpret_cast<char*>(back_);
  }

  std::string_view copy_text(std::string_view text) {
    if (text.empty()) return "";
    char* const place = take_text(text.size());
    std::memcpy(place, text.data(), text.size());
    return {place, text.size()};
  }

  template <typename T>
  T* make() {
    return new (take(sizeof(T))) T();
  }

  // Makes room for `more` values; the array may move.
  void reserve(ListBody* list, size_t more);
  Value* take_items(int64_t count);  // with a TupleHead before it; nullptr for none
  TensorRef* add_tensor(TensorRef ref);
  void charge(size_t size) {
    used_ += static_cast<int64_t>(size);
    if (used_ > limit_) refuse();
  }
  int64_t used() const { return used_; }

  Value root;
  int64_t bytes_read = 0;

 private:
  static constexpr size_t kLargestBlock = size_t{1} << 20;

  std::byte* take_slow(size_t size);
  void release(const void* array,
               size_t size);  // frees it when it is so large that it has a block of its own
  [[noreturn]] void refuse() const;

  std::vector<std::unique_ptr<std::byte[]>> blocks_;
  std::deque<TensorRef> tensors_;
  std::byte* front_ = nullptr;
  std::byte* back_ = nullptr;
  size_t next_block_ = 4096;
  int64_t used_ = 0;
  int64_t limit_;
};

// Makes Values and looks inside them.
struct Layout {
  static Value make(Kind kind, uint8_t detail, size_t size) {
    Value v;
    v.bits_ = static_cast<uint64_t>(kind) | uint64_t{detail} << 8 | uint64_t{size} << 16;
    return v;
  }
  static Value boolean(bool x) {
    Value v = make(Kind::kBool, 0, 0);
    v.integer_ = x;
    return v;
  }
  static Value integer(int64_t x) {
    Value v = make(Kind::kInt, 0, 0);
    v.integer_ = x;
    return v;
  }
  static Value floating(double x) {
    Value v = make(Kind::kFloat, 0, 0);
    v.real_ = x;
    return v;
  }
  static Value text(Kind kind, std::string_view in_arena, uint8_t detail = 0) {
    Value v = make(kind, detail, in_arena.size());
    v.text_ = in_arena.data();
    return v;
  }
  static Value tuple(Kind kind, const Value* items, int64_t size) {
    Value v = make(kind, 0, static_cast<size_t>(size));
    v.items_ = items;
    return v;
  }
  static Value with_body(Kind kind, const void* body) {
    Value v = make(kind, 0, 0);
    v.body_ = body;
    return v;
  }
  static Value dtype(DType dtype) { return make(Kind::kDType, static_cast<uint8_t>(dtype), 0); }
  static Value absent() { return make(static_cast<Kind>(0xff), 0, 0); }
  static bool is_absent(const Value& v) { return (v.bits_ & 0xff) == 0xff; }

  static uint8_t detail(const Value& v) { return static_cast<uint8_t>(v.bits_ >> 8); }
  static size_t length(const Value& v) { return v.bits_ >> 16; }
  // The address that a text, tuple or body has, whatever the kind: its identity together with the kind.
  static const void* address(const Value& v) { return v.body_; }
  static ListBody* list(const Value& v) { return static_cast<ListBody*>(const_cast<void*>(v.body_)); }
  static DictBody* dict(const Value& v) { return static_cast<DictBody*>(list(v)); }
  static ObjectBody* object(const Value& v) { return static_cast<ObjectBody*>(const_cast<void*>(v.body_)); }
  static const StorageBody* storage(const Value& v) { return static_cast<const StorageBody*>(v.body_); }
  static const Global* global(const Value& v) { return static_cast<const Global*>(v.body_); }
  static TupleHead* head(const Value& v) {
    return reinterpret_cast<TupleHead*>(const_cast<Value*>(v.items_)) - 1;
  }
};

// Which node a value is, as long as its document lives.
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
inline Identity identity_of(const Value& v) { return {Layout::address(v), v.kind()}; }

inline bool is_tuple_like(Kind kind) {
  return kind == Kind::kTuple || kind == Kind::kSize || kind == Kind::kFrozenSet || kind == Kind::kSlice ||
         kind == Kind::kRange || kind == Kind::kComplex;
}
inline bool is_list_like(Kind kind) { return kind == Kind::kList || kind == Kind::kSet; }

// Up to four groups of values inside `v`, each an array, in order.
struct Children {
  std::span<const Value> items;       // of a tuple, list or dict (key, value, key, ...)
  const Value* factory = nullptr;     // of a defaultdict
  const Value* attributes = nullptr;  // of a dict or the state of an object
};
Children children(const Value& v);
// Where walks leave their mark; nullptr for what holds no values.
Mark* mark_of(const Value& v);

}  // namespace milepost::pickle
