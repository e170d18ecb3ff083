// Byte-pair encoding.
//
// 1. Each character is a symbol: the id of its string, which has the prefix of continuing pieces before it
//    unless it is the first, and the suffix of the end of a word after it when it is the last.
// 2. A character that the vocabulary lacks becomes its bytes' tokens <0x00> to <0xFF> (byte_fallback, when
// all
//    are there), else the unknown token (fuse_unk: one for a run of them), else nothing.
// 3. While two neighbours have a merge, those with the lowest rank, of these the leftmost, become one.
//
// Step 3 takes the candidates from a heap, so that a piece of n characters costs O(n log n); short pieces are
// searched through instead, which is faster. An unknown token that waits for its run to end comes after the
// bytes of step 2 that follow it: odd, but what the `tokenizers` package does.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "text/model.h"
#include "text/utf8.h"

namespace milepost::text {
namespace {

constexpr size_t kSearchedSymbols = 24;

struct BpeOptions {
  std::optional<std::string> unknown;
  std::string prefix, suffix;
  bool fuse_unknown = false, byte_fallback = false, ignore_merges = false;
};

// Lowest rank first, then leftmost: std heaps keep the largest on top.
bool comes_later(const Candidate& a, const Candidate& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.place > b.place;
}

class Bpe final : public Model {
 public:
  Bpe(TokenIds vocab, MergeTable merges, BpeOptions options);

  void tokenize(std::string_view piece, ModelScratch* scratch, std::vector<int32_t>* ids) const override;
  void tokenize_bytes(std::string_view bytes, ModelScratch* scratch,
                      std::vector<int32_t>* ids) const override;

 private:
  struct PendingUnknown {
    int32_t id = -1;
  };

  void add_characters(std::string_view piece, std::vector<Symbol>* symbols) const;
  void add_unknown(PendingUnknown* pending, std::vector<Symbol>* symbols) const;
  bool add_fallback_bytes(std::string_view character, std::vector<Symbol>* symbols) const;
  int32_t unknown_id() const;
  void merge(ModelScratch* scratch, std::vector<int32_t>* ids) const;
  void search_and_merge(std::vector<Symbol>* symbols, std::vector<int32_t>* ids) const;
  void merge_by_heap(ModelScratch* scratch, std::vector<int32_t>* ids) const;
  void offer(const std::vector<Symbol>& symbols, int32_t place, std::vector<Candidate>* heap) const;

  MergeTable merges_;
  BpeOptions options_;
  std::array<int32_t, 256> byte_ids_;  // of the characters that stand for bytes, -1: not in the vocabulary
  std::array<int32_t, 256> fallback_ids_;  // of <0x00> to <0xFF>
  bool has_all_bytes_ = false;
};

Bpe::Bpe(TokenIds vocab, MergeTable merges, BpeOptions options)
    : Model(std::move(vocab)), merges_(std::move(merges)), options_(std::move(options)) {
  for (size_t byte = 0; byte < 256; ++byte) {
    byte_ids_[byte] = id_of(byte_characters()[byte]).value_or(-1);
    fallback_ids_[byte] = id_of(fmt::format("<0x{:02X}>", byte)).value_or(-1);
  }
  has_all_bytes_ = *std::min_element(byte_ids_.begin(), byte_ids_.end()) >= 0 && options_.prefix.empty() &&
                   options_.suffix.empty();
}

void Bpe::tokenize(std::string_view piece, ModelScratch* scratch, std::vector<int32_t>* ids) const {
  if (options_.ignore_merges) {
    if (const std::optional<int32_t> id = id_of(piece)) {
      ids->push_back(*id);
      return;
    }
  }
  scratch->symbols.clear();
  add_characters(piece, &scratch->symbols);
  merge(scratch, ids);
}

void Bpe::tokenize_bytes(std::string_view bytes, ModelScratch* scratch, std::vector<int32_t>* ids) const {
  if (!has_all_bytes_ || options_.ignore_merges) return Model::tokenize_bytes(bytes, scratch, ids);
  scratch->symbols.clear();
  for (const char byte : bytes)
    scratch->symbols.push_back({byte_ids_[static_cast<uint8_t>(byte)], 0, 0, false});
  merge(scratch, ids);
}

void Bpe::add_characters(std::string_view piece, std::vector<Symbol>* symbols) const {
  PendingUnknown pending;
  std::string spelled;
  for (size_t at = 0; at < piece.size();) {
    const size_t begin = at;
    next_code_point(piece, &at);
    std::string_view character = piece.substr(begin, at - begin);
    if (!options_.prefix.empty() || !options_.suffix.empty()) {
      spelled.clear();
      if (begin > 0) spelled += options_.prefix;
      spelled += character;
      if (at == piece.size()) spelled += options_.suffix;
      character = spelled;
    }
    if (const std::optional<int32_t> id = id_of(character)) {
      if (pending.id >= 0) symbols->push_back({pending.id, 0, 0, false});
      pending.id = -1;
      symbols->push_back({*id, 0, 0, false});
    } else if (!options_.byte_fallback || !add_fallback_bytes(character, symbols)) {
      add_unknown(&pending, symbols);
    }
  }
  if (pending.id >= 0) symbols->push_back({pending.id, 0, 0, false});
}

void Bpe::add_unknown(PendingUnknown* pending, std::vector<Symbol>* symbols) const {
  if (!options_.unknown) return;
  if (pending->id >= 0 && options_.fuse_unknown) return;
  if (pending->id >= 0) symbols->push_back({pending->id, 0, 0, false});
  pending->id = unknown_id();
}

bool Bpe::add_fallback_bytes(std::string_view character, std::vector<Symbol>* symbols) const {
  for (const char byte : character) {
    if (fallback_ids_[static_cast<uint8_t>(byte)] < 0) return false;
  }
  for (const char byte : character)
    symbols->push_back({fallback_ids_[static_cast<uint8_t>(byte)], 0, 0, false});
  return true;
}

int32_t Bpe::unknown_id() const {
  if (const std::optional<int32_t> id = id_of(*options_.unknown)) return *id;
  FormatError error(ErrorCode::kBadFormat,
                    fmt::format("the text has a character that the vocabulary lacks, and "
                                "so does it lack the unknown token '{}'",
                                printable(*options_.unknown, 40)));
  error.set_key("/model/unk_token");
  throw error;
}

void Bpe::merge(ModelScratch* scratch, std::vector<int32_t>* ids) const {
  if (scratch->symbols.size() > size_t{INT32_MAX}) {
    throw FormatError(ErrorCode::kTooLarge, "a piece of text without a place to cut is longer than 2 GiB");
  }
  if (scratch->symbols.size() <= kSearchedSymbols) {
    search_and_merge(&scratch->symbols, ids);
  } else {
    merge_by_heap(scratch, ids);
  }
}

void Bpe::search_and_merge(std::vector<Symbol>* symbols, std::vector<int32_t>* ids) const {
  std::array<Merge, kSearchedSymbols> merges;  // of each symbol with the next
  size_t count = symbols->size();
  std::vector<Symbol>& s = *symbols;
  for (size_t i = 0; i + 1 < count; ++i) merges[i] = merges_.find(s[i].id, s[i + 1].id);
  while (count > 1) {
    size_t best = count;
    uint32_t best_rank = UINT32_MAX;
    for (size_t i = 0; i + 1 < count; ++i) {
      if (merges[i].id >= 0 && merges[i].rank < best_rank) {
        best_rank = merges[i].rank;
        best = i;
      }
    }
    if (best == count) break;
    s[best].id = merges[best].id;
    for (size_t i = best + 1; i + 1 < count; ++i) {
      s[i].id = s[i + 1].id;
      merges[i] = merges[i + 1];
    }
    --count;
    if (best > 0) merges[best - 1] = merges_.find(s[best - 1].id, s[best].id);
    if (best + 1 < count) merges[best] = merges_.find(s[best].id, s[best + 1].id);
  }
  for (size_t i = 0; i < count; ++i) ids->push_back(s[i].id);
}

void Bpe::offer(const std::vector<Symbol>& symbols, int32_t place, std::vector<Candidate>* heap) const {
  const Symbol& left = symbols[static_cast<size_t>(place)];
  if (left.next < 0) return;
  const Merge found = merges_.find(left.id, symbols[static_cast<size_t>(left.next)].id);
  if (found.id >= 0) heap->push_back({found.rank, place, found.id});
}

void Bpe::merge_by_heap(ModelScratch* scratch, std::vector<int32_t>* ids) const {
  std::vector<Symbol>& symbols = scratch->symbols;
  std::vector<Candidate>& heap = scratch->heap;
  const auto count = static_cast<int32_t>(symbols.size());
  for (int32_t i = 0; i < count; ++i) {
    symbols[static_cast<size_t>(i)].previous = i - 1;
    symbols[static_cast<size_t>(i)].next = i + 1 < count ? i + 1 : -1;
  }
  heap.clear();
  for (int32_t i = 0; i + 1 < count; ++i) offer(symbols, i, &heap);
  std::make_heap(heap.begin(), heap.end(), comes_later);
  const auto offer_to_heap = [&](int32_t place) {
    const size_t before = heap.size();
    offer(symbols, place, &heap);
    if (heap.size() > before) std::push_heap(heap.begin(), heap.end(), comes_later);
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), comes_later);
    const Candidate top = heap.back();
    heap.pop_back();
    Symbol& left = symbols[static_cast<size_t>(top.place)];
    if (left.gone || left.next < 0) continue;
    Symbol& right = symbols[static_cast<size_t>(left.next)];
    if (merges_.find(left.id, right.id).id != top.id) continue;  // one of the two is another by now
    left.id = top.id;
    right.gone = true;
    left.next = right.next;
    if (left.next >= 0) symbols[static_cast<size_t>(left.next)].previous = top.place;
    if (left.previous >= 0) offer_to_heap(left.previous);
    offer_to_heap(top.place);
  }
  for (int32_t i = 0; i >= 0; i = symbols[static_cast<size_t>(i)].next)
    ids->push_back(symbols[static_cast<size_t>(i)].id);
}

struct MergeNames {
  std::string left, right;
};

// "a b", or ["a", "b"], which can say what holds spaces. nullopt: a line that says the file's version.
std::optional<MergeNames> read_merge(const JsonNode& node) {
  if (!node.is_string()) {
    if (!node.is_array() || node.size() != 2) {
      throw node.error(ErrorCode::kBadFormat, "want a merge: \"a b\" or [\"a\", \"b\"]");
    }
    return MergeNames{node.at(size_t{0}).text(), node.at(1).text()};
  }
  const std::string& line = node.text();
  if (line.starts_with("#version")) return std::nullopt;
  const size_t space = line.find(' ');
  if (space == std::string::npos || line.find(' ', space + 1) != std::string::npos) {
    throw node.error(ErrorCode::kBadFormat, "want two tokens with one space between");
  }
  return MergeNames{line.substr(0, space), line.substr(space + 1)};
}

int32_t id_in(const TokenIds& vocab, const std::string& token, const JsonNode& node) {
  const auto entry = vocab.find(token);
  if (entry != vocab.end()) return entry->second;
  throw node.error(ErrorCode::kBadFormat, fmt::format("the vocabulary lacks '{}'", printable(token, 80)));
}

MergeTable read_merges(const JsonNode& node, const TokenIds& vocab, const std::string& prefix) {
  MergeTable merges(node.size());
  size_t prefix_characters = 0;
  for (size_t at = 0; at < prefix.size(); ++prefix_characters) next_code_point(prefix, &at);
  uint32_t rank = 0;
  for (size_t i = 0; i < node.size(); ++i) {
    const JsonNode entry = node.at(i);
    const std::optional<MergeNames> names = read_merge(entry);
    if (!names) continue;
    const int32_t left = id_in(vocab, names->left, entry), right = id_in(vocab, names->right, entry);
    if (names->right.size() < prefix_characters) {
      throw entry.error(ErrorCode::kBadFormat, "the second token is shorter than continuing_subword_prefix");
    }
    const int32_t merged = id_in(vocab, names->left + names->right.substr(prefix_characters), entry);
    merges.insert(left, right, {rank++, merged});
  }
  return merges;
}

}  // namespace

std::unique_ptr<Model> read_bpe(const JsonNode& node) {
  if (const std::optional<JsonNode> dropout = node.find("dropout"); dropout && !dropout->is_zero()) {
    throw dropout->error(ErrorCode::kUnsupported, "dropout makes ids depend on chance", "set it to null");
  }
  BpeOptions options;
  options.unknown = node.text("unk_token");
  options.prefix = node.text("continuing_subword_prefix").value_or("");
  options.suffix = node.text("end_of_word_suffix").value_or("");
  options.fuse_unknown = node.flag("fuse_unk", false);
  options.byte_fallback = node.flag("byte_fallback", false);
  options.ignore_merges = node.flag("ignore_merges", false);
  TokenIds vocab = read_vocab(node.at("vocab"));
  MergeTable merges = read_merges(node.at("merges"), vocab, options.prefix);
  return std::make_unique<Bpe>(std::move(vocab), std::move(merges), std::move(options));
}

}  // namespace milepost::text
