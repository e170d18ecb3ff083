// What remains to do when a pickle's tree is complete: drop repeated keys and elements, and see how deep it
// nests.
//
// Both are done by one walk without recursion that visits each container once, so that shared containers
// (which can make a tree of exponential size) and cycles cost nothing more. A container's mark ends as its
// depth; a reference back to a container on the path is not counted.
#include <bit>
#include <cmath>

#include "format/pickle_machine.h"

namespace milepost::pickle {
namespace {

constexpr int kMaxKeyDepth = 64;
constexpr size_t kMaxProbes = 256;  // a good hash needs about ten; more means keys that were made to collide

__extension__ using Wide = unsigned __int128;

uint64_t mix(uint64_t a, uint64_t b) {
  const Wide product = static_cast<Wide>(a ^ 0x9e3779b97f4a7c15) * (b ^ 0xd1b54a32d192ed03);
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

uint64_t hash_text(std::string_view text) {
  uint64_t hash = text.size(), word = 0;
  for (; text.size() >= 8; text.remove_prefix(8)) {
    std::memcpy(&word, text.data(), 8);
    hash = mix(hash, word);
  }
  word = 0;
  if (!text.empty()) std::memcpy(&word, text.data(), text.size());
  return mix(hash, word);
}

bool is_integral(double x) { return x >= -0x1p62 && x <= 0x1p62 && std::trunc(x) == x; }
bool is_text_like(Kind kind) {
  return kind == Kind::kString || kind == Kind::kBytes || kind == Kind::kBigInt || kind == Kind::kDevice ||
         kind == Kind::kPath;
}
// What Python takes for equal across types: bool, int and float; tuple and Size.
Kind key_class(Kind kind) {
  if (kind == Kind::kBool || kind == Kind::kFloat) return Kind::kInt;
  return kind == Kind::kSize ? Kind::kTuple : kind;
}

// Hashes and compares keys; both count what they cost.
class Keys {
 public:
  explicit Keys(int64_t* work) : work_(work) {}

  uint64_t hash(const Value& key, int depth = 0) {
    spend(1, depth);
    const Kind kind = key.kind();
    const auto tag = static_cast<uint64_t>(key_class(kind));
    if (kind == Kind::kInt || kind == Kind::kBool) return mix(tag, static_cast<uint64_t>(key.as_int()));
    if (kind == Kind::kFloat) {
      const double x = key.as_double();
      return mix(
          tag, is_integral(x) ? static_cast<uint64_t>(static_cast<int64_t>(x)) : std::bit_cast<uint64_t>(x));
    }
    if (is_text_like(kind)) {
      spend(static_cast<int64_t>(key.text().size() / 8), depth);
      return mix(tag, hash_text(key.text()));
    }
    if (kind == Kind::kGlobal) return mix(tag, hash_text(key.class_name()));
    if (is_tuple_like(kind)) {
      uint64_t ordered = tag, unordered = tag;
      for (const Value& v : children(key).items) {
        const uint64_t h = hash(v, depth + 1);
        ordered = mix(ordered, h);
        unordered += mix(tag, h);
      }
      return kind == Kind::kFrozenSet ? unordered : ordered;
    }
    if (kind == Kind::kDType) return mix(tag, Layout::detail(key));
    return mix(tag, reinterpret_cast<uintptr_t>(Layout::address(key)));
  }

  bool equal(const Value& a, const Value& b, int depth = 0) {
    spend(1, depth);
    const Kind kind = a.kind();
    if (key_class(kind) != key_class(b.kind())) return false;
    if (key_class(kind) == Kind::kInt) return equal_numbers(a, b);
    if (is_text_like(kind)) {
      if (a.text().size() != b.text().size()) return false;
      if (Layout::address(a) == Layout::address(b)) return true;
      spend(static_cast<int64_t>(a.text().size() / 8), depth);
      return a.text() == b.text();
    }
    if (kind == Kind::kGlobal) return a.class_name() == b.class_name();
    if (kind == Kind::kDType) return a.dtype() == b.dtype();
    if (kind == Kind::kOpaque) return false;  // instances look alike
    if (!is_tuple_like(kind)) return Layout::address(a) == Layout::address(b);
    if (a.size() != b.size()) return false;
    if (Layout::address(a) == Layout::address(b)) return true;
    if (kind == Kind::kFrozenSet) return contains_all(a, b, depth);
    for (int64_t i = 0; i < a.size(); ++i) {
      if (!equal(a.item(i), b.item(i), depth + 1)) return false;
    }
    return true;
  }

 private:
  static bool equal_numbers(const Value& a, const Value& b) {
    const bool a_float = a.kind() == Kind::kFloat, b_float = b.kind() == Kind::kFloat;
    if (a_float && b_float) return a.as_double() == b.as_double();
    if (!a_float && !b_float) return a.as_int() == b.as_int();
    const double x = a_float ? a.as_double() : b.as_double();
    return is_integral(x) && static_cast<int64_t>(x) == (a_float ? b.as_int() : a.as_int());
  }

  bool contains_all(const Value& a, const Value& b, int depth) {
    for (const Value& x : children(a).items) {
      bool found = false;
      for (const Value& y : children(b).items) found = found || equal(x, y, depth + 1);
      if (!found) return false;
    }
    return true;
  }

  void spend(int64_t steps, int depth) {
    *work_ -= steps;
    if (*work_ < 0) fail(ErrorCode::kTooLarge, "the keys of a dict or set take too long to compare");
    if (depth > kMaxKeyDepth) fail(ErrorCode::kTooLarge, "a key of a dict or set nests more than 64 deep");
  }

  int64_t* work_;
};

// Items of `width` values, the first of which is the key. A repeated one gives its last value to the first
// and goes.
int64_t drop_repeated(Value* items, int64_t count, int64_t width, int64_t* work) {
  Keys keys(work);
  const auto keep = [&](int64_t from, int64_t to) {
    if (from != to) std::copy_n(items + from * width, width, items + to * width);
  };
  const auto take_value = [&](int64_t from, int64_t to) {
    if (width == 2) items[to * 2 + 1] = items[from * 2 + 1];
  };
  int64_t kept = 0;
  if (count <= 8) {
    for (int64_t i = 0; i < count; ++i) {
      int64_t same = 0;
      while (same < kept && !keys.equal(items[same * width], items[i * width])) ++same;
      same < kept ? take_value(i, same) : keep(i, kept++);
    }
    return kept;
  }
  const size_t num_slots = std::bit_ceil(static_cast<size_t>(count) * 2);
  std::vector<int64_t> slots(num_slots, -1);
  std::vector<uint64_t> hashes(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t hash = keys.hash(items[i * width]);
    size_t slot = hash & (num_slots - 1), probes = 0;
    int64_t same = -1;
    for (; slots[slot] >= 0; slot = (slot + 1) & (num_slots - 1)) {
      if (++probes > kMaxProbes)
        fail(ErrorCode::kTooLarge, "too many keys of a dict or set have the same hash");
      const int64_t other = slots[slot];
      if (hashes[static_cast<size_t>(other)] != hash || !keys.equal(items[other * width], items[i * width]))
        continue;
      same = other;
      break;
    }
    if (same >= 0) {
      take_value(i, same);
      continue;
    }
    keep(i, kept);
    slots[slot] = kept;
    hashes[static_cast<size_t>(kept++)] = hash;
  }
  return kept;
}

void drop_repeated_keys(const Value& v, int64_t* work) {
  if (v.kind() != Kind::kDict && v.kind() != Kind::kSet) return;
  const int64_t width = v.kind() == Kind::kDict ? 2 : 1;
  if (v.size() < 2) return;
  ListBody* const body = Layout::list(v);
  body->size = static_cast<uint32_t>(width * drop_repeated(body->items, v.size(), width, work));
}

struct Frame {
  Mark* mark;
  Children kids;
  size_t next;   // into items, then factory, then attributes
  Mark deepest;  // of the children seen
};

const Value* next_child(Frame* frame) {
  const size_t num_items = frame->kids.items.size();
  while (frame->next < num_items + 2) {
    const size_t i = frame->next++;
    if (i < num_items) return &frame->kids.items[i];
    const Value* more = i == num_items ? frame->kids.factory : frame->kids.attributes;
    if (more != nullptr) return more;
  }
  return nullptr;
}

[[noreturn]] void fail_depth(int max_depth) {
  fail(ErrorCode::kTooLarge, "containers nest more than " + std::to_string(max_depth) + " deep");
}

}  // namespace

int64_t drop_repeated_items(Value* items, int64_t count, int64_t* work) {
  return drop_repeated(items, count, 1, work);
}

void finish_tree(const Value& root, int max_depth, int64_t* work) {
  std::vector<Frame> path;
  const auto enter = [&](const Value& v, Mark* mark) {
    if (path.size() >= static_cast<size_t>(max_depth)) fail_depth(max_depth);
    drop_repeated_keys(v, work);
    *mark = kOnPath;
    path.push_back({mark, children(v), 0, 0});
  };
  if (Mark* mark = mark_of(root)) enter(root, mark);
  while (!path.empty()) {
    const Value* child = next_child(&path.back());
    if (child == nullptr) {
      const Mark depth = path.back().deepest + 1;
      if (depth > static_cast<Mark>(max_depth)) fail_depth(max_depth);
      *path.back().mark = depth;
      path.pop_back();
      if (!path.empty()) path.back().deepest = std::max(path.back().deepest, depth);
      continue;
    }
    Mark* const mark = mark_of(*child);
    if (mark == nullptr || *mark == kOnPath) continue;
    if (*mark == kUnvisited) {
      enter(*child, mark);
    } else {
      path.back().deepest = std::max(path.back().deepest, *mark);
    }
  }
}

}  // namespace milepost::pickle
