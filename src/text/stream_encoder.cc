// How a stream becomes ids:
//
// 1. `bytes` ends with what may be half a character; whole ones go to `raw`.
// 2. Added tokens that are looked for in raw text end a gap. While none is found the last longest-1 bytes may
// be
//    the beginning of one and stay. The gap before them is normalized up to the last place between a line
//    feed and a letter or digit of ASCII, where local normalizers may be cut, and goes to `normal`.
// 3. Normalized added tokens are cut out of `normal` in the same way; what is before them is split by the
// first
//    pre-tokenizer as far as it is certain of its pieces.
//
// A buffer that got stuck is tried again only when it has doubled, so that all of this stays linear.
#include "milepost/text/stream_encoder.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "milepost/base/error.h"
#include "text/piece_encoder.h"
#include "text/utf8.h"

namespace milepost::text {
namespace {

constexpr size_t kFirstTry = size_t{64} << 10;

bool is_ascii_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }

// The last place up to `limit` where `text` may be cut for local normalizers; 0: none.
size_t last_cut(std::string_view text, size_t limit) {
  for (size_t at = std::min(limit, text.size() - 1); at > 0; --at) {
    if (text[at - 1] == '\n' && is_ascii_word(text[at])) return at;
  }
  return 0;
}

// How much of a buffer cannot be the beginning of one of the matcher's tokens, in whole characters.
size_t free_of_tokens(std::string_view text, const TokenMatcher& matcher) {
  const size_t kept = matcher.empty() ? 0 : matcher.longest() - 1;
  size_t end = text.size() - std::min(text.size(), kept);
  while (end > 0 && end < text.size() && (static_cast<uint8_t>(text[end]) & 0xC0) == 0x80) --end;
  return end;
}

bool can_stream(const Pipeline& pipeline) {
  for (const auto& [id, token] : pipeline.added.by_id()) {
    if (token.lstrip || token.rstrip || token.single_word) return false;
  }
  for (const auto& normalizer : pipeline.normalizers) {
    if (!normalizer->is_local()) return false;
  }
  const auto& stages = pipeline.pre_tokenizers.stages;
  return !stages.empty() && stages[0]->can_split_beginning();
}

}  // namespace

struct StreamEncoder::State {
  State(std::shared_ptr<const Tokenizer> owner, bool bos, bool eos)
      : tokenizer(std::move(owner)),
        pipeline(tokenizer->pipeline()),
        pieces(pipeline),
        adds_bos(bos && !tokenizer->adds_bos() && tokenizer->bos_id()),
        adds_eos(eos && !tokenizer->adds_eos() && tokenizer->eos_id()),
        is_bounded(can_stream(pipeline)) {}

  void begin(std::vector<int32_t>* ids) {
    if (std::exchange(has_begun, true)) return;
    if (adds_bos) ids->push_back(*tokenizer->bos_id());
    ids->insert(ids->end(), pipeline.before.begin(), pipeline.before.end());
  }

  void take_characters(std::string_view bytes) {
    raw += bytes;
    const std::string_view fresh = std::string_view(raw).substr(checked);
    const size_t whole = whole_characters(fresh);
    if (const size_t bad = find_invalid_utf8(fresh.substr(0, whole)); bad != std::string_view::npos) {
      throw invalid_utf8(raw_offset + static_cast<int64_t>(checked + bad));
    }
    checked += whole;
  }

  void drop_raw(size_t count) {
    raw.erase(0, count);
    checked -= count;
    raw_offset += static_cast<int64_t>(count);
  }

  // Appends raw[begin, end), normalized, to `normal`.
  void normalize(size_t begin, size_t end) {
    if (pipeline.normalizers.empty()) {
      normal.append(raw, begin, end - begin);
      return;
    }
    NormalText text = {raw.substr(begin, end - begin), true};
    pipeline.normalize(&text);
    normal += text.text;
  }

  // All of the checked characters, as far as they are certain.
  void advance(std::vector<int32_t>* ids) {
    const TokenMatcher& matcher = pipeline.added.matcher(false);
    const std::string_view text = std::string_view(raw).substr(0, checked);
    const size_t free = free_of_tokens(text, matcher);
    size_t done = 0;
    while (const auto match = matcher.find(text, done)) {
      if (match->begin >= free) break;
      normalize(done, match->begin);
      advance_normal(true, ids);
      ids->push_back(match->id);
      done = match->end;
      at_start = false;
    }
    if (done < free) {
      const size_t end =
          pipeline.normalizers.empty() ? free : done + last_cut(text.substr(done), free - done);
      normalize(done, end);
      done = end;
      advance_normal(false, ids);
    }
    drop_raw(done);
  }

  // `gap_ends`: nothing can follow `normal` before the next token.
  void advance_normal(bool gap_ends, std::vector<int32_t>* ids) {
    if (gap_ends) {
      pieces.encode_normal(normal, at_start, ids);
      normal.clear();
      return;
    }
    const TokenMatcher& matcher = pipeline.added.matcher(true);
    const size_t free = free_of_tokens(normal, matcher);
    size_t done = 0;
    while (const auto match = matcher.find(normal, done)) {
      if (match->begin >= free) break;
      pieces.encode_plain(std::string_view(normal).substr(done, match->begin - done), at_start, ids);
      ids->push_back(match->id);
      done = match->end;
      at_start = false;
    }
    if (done < free) {
      const size_t more =
          pieces.encode_beginning(std::string_view(normal).substr(done, free - done), at_start, ids);
      if (more > 0) at_start = false;
      done += more;
    }
    normal.erase(0, done);
  }

  const std::shared_ptr<const Tokenizer> tokenizer;
  const Pipeline& pipeline;
  PieceEncoder pieces;
  const bool adds_bos, adds_eos, is_bounded;
  bool has_begun = false;
  bool at_start = true;  // nothing of the text has been encoded
  std::string raw;       // valid UTF-8 up to `checked`
  size_t checked = 0;
  int64_t raw_offset = 0;  // of raw[0] in the whole text
  std::string normal;
  size_t next_try = kFirstTry;
};

StreamEncoder::StreamEncoder(std::shared_ptr<const Tokenizer> tokenizer, bool add_bos, bool add_eos)
    : state_(std::make_unique<State>(std::move(tokenizer), add_bos, add_eos)) {}
StreamEncoder::~StreamEncoder() = default;
StreamEncoder::StreamEncoder(StreamEncoder&&) noexcept = default;

bool StreamEncoder::is_bounded() const { return state_->is_bounded; }

void StreamEncoder::feed(std::string_view bytes, std::vector<int32_t>* ids) {
  State& state = *state_;
  state.take_characters(bytes);
  if (!state.is_bounded || state.raw.size() + state.normal.size() < state.next_try) return;
  state.begin(ids);
  state.advance(ids);
  state.next_try = std::max(kFirstTry, 2 * (state.raw.size() + state.normal.size()));
}

void StreamEncoder::finish(std::vector<int32_t>* ids) {
  State& state = *state_;
  state.begin(ids);
  if (state.checked < state.raw.size()) {
    throw invalid_utf8(state.raw_offset + static_cast<int64_t>(state.checked));
  }
  if (!state.is_bounded) {
    state.pieces.encode(state.raw, ids);
  } else {
    const TokenMatcher& matcher = state.pipeline.added.matcher(false);
    size_t done = 0;
    while (const auto match = matcher.find(state.raw, done)) {
      state.normalize(done, match->begin);
      state.advance_normal(true, ids);
      ids->push_back(match->id);
      done = match->end;
      state.at_start = false;
    }
    state.normalize(done, state.raw.size());
    state.advance_normal(true, ids);
  }
  ids->insert(ids->end(), state.pipeline.after.begin(), state.pipeline.after.end());
  if (state.adds_eos) ids->push_back(*state.tokenizer->eos_id());
}

}  // namespace milepost::text
