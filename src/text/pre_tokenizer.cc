#include "text/pre_tokenizer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "text/behavior.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace milepost::text {
namespace {

// How GPT-2 splits.
constexpr std::string_view kByteLevelRegex =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Hands the ranges of one piece to a sink.
class Emitter {
 public:
  Emitter(const Piece& piece, PieceSink* sink) : piece_(piece), sink_(sink) {}
  void operator()(size_t begin, size_t end) const {
    if (begin < end) sink_->take({piece_.text.substr(begin, end - begin), piece_.at_start && begin == 0});
  }

 private:
  const Piece& piece_;
  PieceSink* sink_;
};

class Split final : public PreTokenizer {
 public:
  Split(Regex regex, Behavior behavior, bool invert)
      : regex_(std::move(regex)), behavior_(behavior), invert_(invert) {}

  void split(const Piece& piece, SplitScratch* scratch, PieceSink* sink) const override {
    MatchWalk walk(regex_, piece.text, &scratch->regex);
    const auto next = [&](MatchRange* range) {
      if (!walk.next(range)) return false;
      range->is_match = range->is_match != invert_;
      return true;
    };
    split_ranges(next, behavior_, &scratch->ranges, Emitter(piece, sink));
  }

  size_t split_beginning(const Piece& piece, SplitScratch* scratch, PieceSink* sink) const override {
    const Emitter emit(piece, sink);
    const std::string_view text = regex_.matchable(piece.text, &scratch->regex);
    size_t done = 0;
    TextRange match;
    while (regex_.find(text, done, true, &scratch->regex, &match) == Regex::Outcome::kFound) {
      const bool keeps_match = behavior_ == Behavior::kIsolated || invert_;
      const bool keeps_between = behavior_ == Behavior::kIsolated || !invert_;
      if (keeps_between) emit(done, match.begin);
      if (keeps_match) emit(match.begin, match.end);
      done = match.end;
    }
    return done;
  }

  bool can_split_beginning() const override {
    return (behavior_ == Behavior::kIsolated || behavior_ == Behavior::kRemoved) && regex_.is_resumable();
  }

 private:
  Regex regex_;
  Behavior behavior_;
  bool invert_;
};

// Each character for which the predicate holds is a match.
class SplitAtCharacters final : public PreTokenizer {
 public:
  using Predicate = bool (*)(char32_t);
  SplitAtCharacters(Predicate predicate, Behavior behavior) : predicate_(predicate), behavior_(behavior) {}

  void split(const Piece& piece, SplitScratch* scratch, PieceSink* sink) const override {
    CharacterWalk walk(piece.text, predicate_);
    split_ranges([&](MatchRange* range) { return walk.next(range); }, behavior_, &scratch->ranges,
                 Emitter(piece, sink));
  }

  size_t split_beginning(const Piece& piece, SplitScratch*, PieceSink* sink) const override {
    const Emitter emit(piece, sink);
    CharacterWalk walk(piece.text, predicate_);
    MatchRange range;
    size_t done = 0;
    while (walk.next(&range)) {
      if (!range.is_match) continue;
      emit(done, range.begin);
      if (behavior_ == Behavior::kIsolated) emit(range.begin, range.end);
      done = range.end;
    }
    return done;
  }

  bool can_split_beginning() const override {
    return behavior_ == Behavior::kIsolated || behavior_ == Behavior::kRemoved;
  }

 private:
  Predicate predicate_;
  Behavior behavior_;
};

// Runs of word characters and runs of what is neither word nor whitespace; whitespace goes.
class Words final : public PreTokenizer {
 public:
  void split(const Piece& piece, SplitScratch*, PieceSink* sink) const override {
    const Emitter emit(piece, sink);
    Kind kind = kSpace;
    size_t begin = 0;
    for (size_t at = 0; at < piece.text.size();) {
      const size_t here = at;
      const char32_t c = next_code_point(piece.text, &at);
      const Kind next = is_word(c) ? kWord : is_whitespace(c) ? kSpace : kOther;
      if (next == kind) continue;
      if (kind != kSpace) emit(begin, here);
      begin = here;
      kind = next;
    }
    if (kind != kSpace) emit(begin, piece.text.size());
  }

 private:
  enum Kind { kSpace, kWord, kOther };
};

// A space before a text that does not begin with one.
class PrefixSpace final : public PreTokenizer {
 public:
  void split(const Piece& piece, SplitScratch* scratch, PieceSink* sink) const override {
    if (piece.text.starts_with(' ')) return sink->take(piece);
    scratch->text = " ";
    scratch->text += piece.text;
    sink->take({scratch->text, piece.at_start});
  }
};

class MapBytes final : public PreTokenizer {
 public:
  void split(const Piece& piece, SplitScratch* scratch, PieceSink* sink) const override {
    scratch->text.clear();
    for (const char byte : piece.text) scratch->text += byte_characters()[static_cast<uint8_t>(byte)];
    sink->take({scratch->text, piece.at_start});
  }
};

class Metaspace final : public PreTokenizer {
 public:
  enum class Prepend : uint8_t { kAlways, kFirst, kNever };
  Metaspace(std::string replacement, Prepend prepend, bool splits)
      : replacement_(std::move(replacement)), prepend_(prepend), splits_(splits) {}

  void split(const Piece& piece, SplitScratch* scratch, PieceSink* sink) const override {
    std::string& text = scratch->text;
    text.clear();
    const bool has_one = piece.text.starts_with(' ') || piece.text.starts_with(replacement_);
    const bool wants_one = prepend_ == Prepend::kAlways || (prepend_ == Prepend::kFirst && piece.at_start);
    if (wants_one && !has_one) text += replacement_;
    for (const char c : piece.text) {
      if (c == ' ') {
        text += replacement_;
      } else {
        text += c;
      }
    }
    const Piece replaced = {text, piece.at_start};
    if (!splits_) return sink->take(replaced);
    size_t code_point_at = 0;
    const char32_t mark = next_code_point(replacement_, &code_point_at);
    CharacterWalk walk(text, [mark](char32_t c) { return c == mark; });
    split_ranges([&](MatchRange* range) { return walk.next(range); }, Behavior::kMergedWithNext,
                 &scratch->ranges, Emitter(replaced, sink));
  }

 private:
  std::string replacement_;
  Prepend prepend_;
  bool splits_;
};

std::unique_ptr<PreTokenizer> read_split(const JsonNode& node) {
  return std::make_unique<Split>(read_regex(node.at("pattern")), read_behavior(node.at("behavior")),
                                 node.flag("invert", false));
}

std::unique_ptr<PreTokenizer> read_metaspace(const JsonNode& node) {
  const std::string replacement = node.text("replacement").value_or("\u2581");
  size_t end = 0;
  if (!replacement.empty()) next_code_point(replacement, &end);
  if (end == 0 || end != replacement.size()) {
    throw node.at("replacement").error(ErrorCode::kBadFormat, "want one character");
  }
  auto prepend = Metaspace::Prepend::kAlways;
  if (const std::optional<JsonNode> scheme = node.find("prepend_scheme")) {
    if (scheme->text() == "first") {
      prepend = Metaspace::Prepend::kFirst;
    } else if (scheme->text() == "never") {
      prepend = Metaspace::Prepend::kNever;
    } else if (scheme->text() != "always") {
      throw scheme->unknown("prepend_scheme", scheme->text());
    }
  }
  if (!node.flag("add_prefix_space", true)) {
    if (prepend != Metaspace::Prepend::kNever) {
      throw node.at("add_prefix_space").error(ErrorCode::kBadFormat, "contradicts prepend_scheme");
    }
  }
  return std::make_unique<Metaspace>(replacement, prepend, node.flag("split", true));
}

void read_byte_level(const JsonNode& node, PreTokenizers* result) {
  if (node.flag("add_prefix_space", true)) result->stages.push_back(std::make_unique<PrefixSpace>());
  if (node.flag("use_regex", true)) {
    result->stages.push_back(
        std::make_unique<Split>(Regex::oniguruma(kByteLevelRegex), Behavior::kIsolated, false));
  }
  result->maps_bytes = true;
}

}  // namespace

size_t PreTokenizer::split_beginning(const Piece&, SplitScratch*, PieceSink*) const { return 0; }

void read_pre_tokenizers(const JsonNode& node, PreTokenizers* result) {
  const JsonNode type = node.at("type");
  const std::string& name = type.text();
  if (name == "Sequence") {
    const JsonNode parts = node.at("pretokenizers");
    for (size_t i = 0; i < parts.size(); ++i) read_pre_tokenizers(parts.at(i), result);
    return;
  }
  if (std::exchange(result->maps_bytes, false)) result->stages.push_back(std::make_unique<MapBytes>());
  if (name == "ByteLevel") {
    read_byte_level(node, result);
  } else if (name == "Split") {
    result->stages.push_back(read_split(node));
  } else if (name == "Digits") {
    const bool individual = node.flag("individual_digits", false);
    result->stages.push_back(std::make_unique<SplitAtCharacters>(
        is_numeric, individual ? Behavior::kIsolated : Behavior::kContiguous));
  } else if (name == "Whitespace") {
    result->stages.push_back(std::make_unique<Words>());
  } else if (name == "WhitespaceSplit") {
    result->stages.push_back(std::make_unique<SplitAtCharacters>(is_whitespace, Behavior::kRemoved));
  } else if (name == "Punctuation") {
    const std::optional<JsonNode> behavior = node.find("behavior");
    result->stages.push_back(std::make_unique<SplitAtCharacters>(
        is_punctuation, behavior ? read_behavior(*behavior) : Behavior::kIsolated));
  } else if (name == "Metaspace") {
    result->stages.push_back(read_metaspace(node));
  } else {
    throw type.unknown("pre-tokenizer", name);
  }
}

}  // namespace milepost::text
