// A glob is compiled to a small program whose steps each take one character, and all positions that the name
// so far can have led to are followed at once (Thompson's construction). Hence no glob, however nested, costs
// more than its length times the name's.
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "milepost/catalog/layout.h"

namespace milepost {
namespace {

constexpr std::string_view kSpecial = "*?[{\\";

// Takes one character off the front of `text`, which is not empty: its UTF-8 bytes, or a single byte that
// starts none, as one number. The numbers are in the order of the code points.
uint32_t take_character(std::string_view& text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const size_t length = byte(0) >= 0xf0 ? 4 : byte(0) >= 0xe0 ? 3 : byte(0) >= 0xc0 ? 2 : 1;
  uint32_t character = byte(0);
  size_t taken = 1;
  while (taken < length && taken < text.size() && (byte(taken) & 0xc0) == 0x80) {
    character = character << 8 | byte(taken++);
  }
  if (taken < length) {
    character = byte(0);
    taken = 1;
  }
  text.remove_prefix(taken);
  return character;
}

struct CharacterClass {
  bool negated = false;
  std::vector<std::pair<uint32_t, uint32_t>> ranges;  // both ends included

  bool contains(uint32_t character) const {
    for (const auto& [first, last] : ranges) {
      if (character >= first && character <= last) return !negated;
    }
    return negated;
  }
};

// Takes "[...]" off the front of `glob`; false, and nothing taken, when it is not closed.
bool take_class(std::string_view& glob, CharacterClass* result) {
  std::string_view rest = glob.substr(1);
  if (rest.starts_with('!')) {
    result->negated = true;
    rest.remove_prefix(1);
  }
  for (bool first = true; !rest.empty(); first = false) {
    if (rest[0] == ']' && !first) {
      glob = rest.substr(1);
      return true;
    }
    const uint32_t low = take_character(rest);
    uint32_t high = low;
    if (rest.size() >= 2 && rest[0] == '-' && rest[1] != ']') {
      rest.remove_prefix(1);
      high = take_character(rest);
    }
    result->ranges.emplace_back(low, high);
  }
  return false;
}

struct Step {
  enum class Kind : uint8_t { kCharacter, kAny, kAnyRun, kClass, kFork, kJump, kEnd };
  Kind kind;
  uint32_t value =
      0;  // the character, the index of the class or of the fork's targets, or the target of a jump
};

class Program {
 public:
  explicit Program(std::string_view glob) {
    const std::vector<bool> closed = closed_braces(glob);
    std::vector<Group> open;
    for (std::string_view rest = glob; !rest.empty();) {
      const size_t at = glob.size() - rest.size();
      const char c = rest[0];
      CharacterClass characters;
      if (c == '\\' && rest.size() > 1) {
        rest.remove_prefix(1);
        add(Step::Kind::kCharacter, take_character(rest));
      } else if (c == '*' || c == '?') {
        add(c == '*' ? Step::Kind::kAnyRun : Step::Kind::kAny);
        rest.remove_prefix(1);
      } else if (c == '[' && take_class(rest, &characters)) {
        add(Step::Kind::kClass, static_cast<uint32_t>(classes_.size()));
        classes_.push_back(std::move(characters));
      } else if (c == '{' && closed[at]) {
        open.push_back({static_cast<uint32_t>(forks_.size()), {}});
        add(Step::Kind::kFork, open.back().fork);
        forks_.push_back({next()});
        rest.remove_prefix(1);
      } else if (c == ',' && !open.empty()) {
        open.back().jumps.push_back(next());
        add(Step::Kind::kJump);
        forks_[open.back().fork].push_back(next());
        rest.remove_prefix(1);
      } else if (c == '}' && !open.empty()) {
        for (uint32_t jump : open.back().jumps) steps_[jump].value = next();
        open.pop_back();
        rest.remove_prefix(1);
      } else {
        add(Step::Kind::kCharacter, take_character(rest));
      }
    }
    add(Step::Kind::kEnd);
  }

  bool matches(std::string_view name) const {
    std::vector<uint32_t> now, after, seen(steps_.size(), 0), pending;
    uint32_t turn = 1;
    follow(0, turn, seen, pending, now);
    while (!name.empty() && !now.empty()) {
      const uint32_t character = take_character(name);
      ++turn;
      after.clear();
      for (uint32_t at : now) {
        if (!accepts(steps_[at], character)) continue;
        const bool stays = steps_[at].kind == Step::Kind::kAnyRun;
        follow(stays ? at : at + 1, turn, seen, pending, after);
      }
      now.swap(after);
    }
    for (uint32_t at : now) {
      if (name.empty() && steps_[at].kind == Step::Kind::kEnd) return true;
    }
    return false;
  }

 private:
  struct Group {
    uint32_t fork;
    std::vector<uint32_t> jumps;  // at the end of each alternative but the last
  };

  // For each '{', whether a '}' closes it.
  static std::vector<bool> closed_braces(std::string_view glob) {
    std::vector<bool> closed(glob.size(), false);
    std::vector<size_t> open;
    for (std::string_view rest = glob; !rest.empty();) {
      const size_t at = glob.size() - rest.size();
      CharacterClass ignored;
      if (rest[0] == '[' && take_class(rest, &ignored)) continue;
      if (rest[0] == '\\' && rest.size() > 1)
        rest.remove_prefix(1);
      else if (rest[0] == '{')
        open.push_back(at);
      else if (rest[0] == '}' && !open.empty()) {
        closed[open.back()] = true;
        open.pop_back();
      }
      rest.remove_prefix(1);
    }
    return closed;
  }

  uint32_t next() const { return static_cast<uint32_t>(steps_.size()); }
  void add(Step::Kind kind, uint32_t value = 0) { steps_.push_back({kind, value}); }

  bool accepts(const Step& step, uint32_t character) const {
    switch (step.kind) {
      case Step::Kind::kCharacter:
        return step.value == character;
      case Step::Kind::kAny:
      case Step::Kind::kAnyRun:
        return true;
      case Step::Kind::kClass:
        return classes_[step.value].contains(character);
      default:
        return false;
    }
  }

  // Adds `start` and all that can be reached from it without taking a character, each step once a turn.
  void follow(uint32_t start, uint32_t turn, std::vector<uint32_t>& seen, std::vector<uint32_t>& pending,
              std::vector<uint32_t>& reached) const {
    pending.assign(1, start);
    while (!pending.empty()) {
      const uint32_t at = pending.back();
      pending.pop_back();
      if (std::exchange(seen[at], turn) == turn) continue;
      const Step& step = steps_[at];
      if (step.kind == Step::Kind::kFork) {
        pending.insert(pending.end(), forks_[step.value].begin(), forks_[step.value].end());
      } else if (step.kind == Step::Kind::kJump) {
        pending.push_back(step.value);
      } else {
        reached.push_back(at);
        if (step.kind == Step::Kind::kAnyRun) pending.push_back(at + 1);
      }
    }
  }

  std::vector<Step> steps_;
  std::vector<CharacterClass> classes_;
  std::vector<std::vector<uint32_t>> forks_;
};

}  // namespace

bool glob_match(std::string_view glob, std::string_view name) {
  const size_t plain = glob.find_first_of(kSpecial);
  if (plain == std::string_view::npos) return glob == name;
  if (!name.starts_with(glob.substr(0, plain))) return false;
  return Program(glob.substr(plain)).matches(name.substr(plain));
}

}  // namespace milepost
