// Added tokens: strings that are cut out of the text before anything else sees it.
//
// Which flags count when a token is added twice, and which id a token gets, follow the `tokenizers` package:
// TorchTitan adds the special tokens of tokenizer_config.json a second time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "text/id_map.h"

namespace milepost::text {

struct AddedToken {
  std::string content;
  bool single_word = false;  // only where no word character is beside it
  bool lstrip = false;       // takes the whitespace before it along
  bool rstrip = false;       // and after it
  bool normalized = false;   // looked for in the normalized text, in normalized form
  bool special = false;

  bool operator==(const AddedToken&) const = default;
};

// Finds strings in text: of those that begin first the longest, of equal ones the first.
class TokenMatcher {
 public:
  struct Match {
    size_t begin, end;
    int32_t id;
  };

  void add(std::string_view token, int32_t id);  // not empty
  bool empty() const { return nodes_.size() == 1; }
  size_t longest() const { return longest_; }
  // The first match at or after `from`.
  std::optional<Match> find(std::string_view text, size_t from) const;

 private:
  struct Node {
    std::vector<std::pair<uint8_t, uint32_t>> children;
    int32_t id = -1;
  };
  uint32_t child(uint32_t node, uint8_t byte) const;  // 0: none
  std::optional<Match> match_at(std::string_view text, size_t begin) const;

  std::vector<Node> nodes_ = std::vector<Node>(1);
  bool starts_[256] = {};
  size_t longest_ = 0;
};

class AddedTokens {
 public:
  // A part of a text: a token, or (id -1) what lies between.
  struct Part {
    size_t begin, end;
    int32_t id;
  };
  using Normalize = std::function<std::string(const std::string&)>;

  // Adds in order; a token that is in `vocab` has its id there, others get the next free one. `vocab_size` is
  // the number of entries of `vocab`.
  void add(const std::vector<AddedToken>& tokens, const TokenIds& vocab, int32_t vocab_size);
  // To be called once all are there. Throws FormatError for a token that `normalize` leaves nothing of.
  void build_matchers(const Normalize& normalize);

  std::optional<int32_t> id_of(std::string_view content) const;
  const AddedToken* token_of(int32_t id) const;
  bool is_special(std::string_view content) const {
    return special_contents_.count(std::string(content)) > 0;
  }
  const std::map<int32_t, AddedToken>& by_id() const { return by_id_; }

  // Appends the parts of `text`, in order; together they cover it, but for odd overlaps of rstrip.
  void split(std::string_view text, bool normalized, std::vector<Part>* parts) const;
  bool any(bool normalized) const { return !matcher(normalized).empty(); }
  const TokenMatcher& matcher(bool normalized) const { return normalized ? normalized_ : raw_; }

 private:
  std::vector<AddedToken> special_, classic_;
  std::set<std::string> special_contents_;
  std::map<std::string, int32_t, std::less<>> ids_;
  std::map<int32_t, AddedToken> by_id_;
  TokenMatcher raw_, normalized_;
};

}  // namespace milepost::text
