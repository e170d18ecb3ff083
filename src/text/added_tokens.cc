#include "text/added_tokens.h"

#include <fmt/format.h>

#include <algorithm>

#include "milepost/base/error.h"
#include "text/unicode.h"

namespace milepost::text {

void TokenMatcher::add(std::string_view token, int32_t id) {
  uint32_t node = 0;
  for (const char c : token) {
    uint32_t next = child(node, static_cast<uint8_t>(c));
    if (next == 0) {
      next = static_cast<uint32_t>(nodes_.size());
      nodes_[node].children.emplace_back(static_cast<uint8_t>(c), next);
      nodes_.emplace_back();
    }
    node = next;
  }
  if (nodes_[node].id < 0) nodes_[node].id = id;
  starts_[static_cast<uint8_t>(token[0])] = true;
  longest_ = std::max(longest_, token.size());
}

uint32_t TokenMatcher::child(uint32_t node, uint8_t byte) const {
  for (const auto& [label, next] : nodes_[node].children) {
    if (label == byte) return next;
  }
  return 0;
}

std::optional<TokenMatcher::Match> TokenMatcher::match_at(std::string_view text, size_t begin) const {
  std::optional<Match> longest;
  uint32_t node = 0;
  for (size_t at = begin; at < text.size(); ++at) {
    node = child(node, static_cast<uint8_t>(text[at]));
    if (node == 0) break;
    if (nodes_[node].id >= 0) longest = Match{begin, at + 1, nodes_[node].id};
  }
  return longest;
}

std::optional<TokenMatcher::Match> TokenMatcher::find(std::string_view text, size_t from) const {
  if (empty()) return std::nullopt;
  for (size_t at = from; at < text.size(); ++at) {
    if (!starts_[static_cast<uint8_t>(text[at])]) continue;
    if (const std::optional<Match> match = match_at(text, at)) return match;
  }
  return std::nullopt;
}

void AddedTokens::add(const std::vector<AddedToken>& tokens, const TokenIds& vocab, int32_t vocab_size) {
  int32_t largest = -1;
  for (const auto& [content, id] : ids_) largest = std::max(largest, id);
  for (const AddedToken& token : tokens) {
    if (token.content.empty()) continue;
    const std::optional<int32_t> known = id_of(token.content);
    if (known && by_id_.at(*known) == token) continue;
    if (token.special && special_contents_.insert(token.content).second) special_.push_back(token);
    int32_t id = largest >= vocab_size ? largest + 1 : vocab_size;
    if (known) {
      id = *known;
    } else if (const auto entry = vocab.find(token.content); entry != vocab.end()) {
      id = entry->second;
    }
    if (id == INT32_MAX) {
      FormatError error(ErrorCode::kTooLarge, "no id is left for an added token");
      error.set_key(token.content);
      throw error;
    }
    ids_[token.content] = id;
    by_id_[id] = token;
    largest = std::max(largest, id);
    if (special_contents_.count(token.content) == 0) classic_.push_back(token);
  }
}

void AddedTokens::build_matchers(const Normalize& normalize) {
  raw_ = TokenMatcher();
  normalized_ = TokenMatcher();
  for (const std::vector<AddedToken>* tokens : {&special_, &classic_}) {
    for (const AddedToken& token : *tokens) {
      const int32_t id = ids_.find(token.content)->second;
      if (!token.normalized) {
        raw_.add(token.content, id);
        continue;
      }
      const std::string content = normalize(token.content);
      if (content.empty()) {
        FormatError error(ErrorCode::kUnsupported, "the normalizer leaves nothing of an added token",
                          "mark it as not normalized");
        error.set_key(token.content);
        throw error;
      }
      normalized_.add(content, id);
    }
  }
}

std::optional<int32_t> AddedTokens::id_of(std::string_view content) const {
  const auto entry = ids_.find(content);
  if (entry == ids_.end()) return std::nullopt;
  return entry->second;
}

const AddedToken* AddedTokens::token_of(int32_t id) const {
  const auto entry = by_id_.find(id);
  return entry == by_id_.end() ? nullptr : &entry->second;
}

void AddedTokens::split(std::string_view text, bool normalized, std::vector<Part>* parts) const {
  size_t done = 0, from = 0;
  while (const std::optional<TokenMatcher::Match> match = matcher(normalized).find(text, from)) {
    from = match->end;
    const AddedToken& token = by_id_.at(match->id);
    size_t begin = match->begin, end = match->end;
    if (token.single_word && (ends_with_word(text.substr(0, begin)) || starts_with_word(text.substr(end))))
      continue;
    if (token.lstrip) begin = std::max(begin - trailing_whitespace(text.substr(0, begin)), done);
    if (token.rstrip) end += leading_whitespace(text.substr(end));
    if (done < begin) parts->push_back({done, begin, -1});
    parts->push_back({begin, end, match->id});
    done = end;
  }
  if (done < text.size()) parts->push_back({done, text.size(), -1});
}

}  // namespace milepost::text
