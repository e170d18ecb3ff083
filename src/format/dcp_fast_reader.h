// FastReader: the one-pass reader behind dcp_metadata_fast.h, whose parts lie in dcp_fast_entries.cc and
// dcp_fast_storage.cc.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "format/dcp_chunk_lookup.h"
#include "format/dcp_metadata_checks.h"
#include "format/dcp_token_reader.h"
#include "milepost/format/dcp.h"

namespace milepost::dcp {

constexpr uint32_t bit(Word word) { return uint32_t{1} << static_cast<uint32_t>(word); }

struct Values {
  std::array<int64_t, kMaxDims> values;
  size_t size = 0;

  void push(int64_t value) {
    if (size == kMaxDims) throw Unusual{};
    values[size++] = value;
  }
  void assign(DimsView view) {
    size = view.size();
    std::copy(view.begin(), view.end(), values.begin());
  }
  DimsView view() const { return {values.data(), size}; }
};

inline Token indexed(Tag tag, int64_t index) {
  if (index > Token::kMaxIndex) throw Unusual{};
  return {tag, index};
}

class FastReader {
 public:
  explicit FastReader(const ByteSource& source)
      : in_(source), lookup_(out_.catalog), budget_(source.size()) {}
  FastReader(const FastReader&) = delete;  // lookup_ looks at out_
  FastReader& operator=(const FastReader&) = delete;

  Metadata read();

 private:
  template <typename OnAttribute>
  uint32_t attributes(OnAttribute on_attribute);
  Word attribute() {
    const Token name = in_.primary();
    return name.tag() == Tag::kWord ? static_cast<Word>(name.index()) : word_of(name);
  }
  Word word_of(Token name) const;
  template <typename OnItem>
  void text_dict(OnItem on_item);

  void metadata_attribute(Word word);
  void entry(Token key, int64_t key_memo);
  void tensor(Token key, int64_t key_memo);
  DType properties();
  void layout();
  void memory_format();
  void chunks();
  void chunk(Token first);

  void paths();
  void path(Token key);
  void storage_data();
  void storage_entry(Token first);
  int64_t storage_key(Token first);
  Location storage_info();
  uint32_t file();
  void storage_meta();
  std::string optional_text();
  std::string path_object(Token first);
  void finish();

  Token size(Token self, Values* values);
  void load(Token reference, Values* values) const;
  Token entry_name();
  Token find_entry(std::string_view name) const;
  std::string_view text_of(Token token) const;
  const Catalog& catalog() const { return out_.catalog; }
  void spend(size_t bytes) {
    if (!budget_.spend(bytes)) throw Unusual{};
  }

  static constexpr int64_t kNowhere = INT64_MIN;  // storage_key(): else a chunk or, as -1 - o, an object

  TokenReader in_;
  Metadata out_;
  ChunkLookup lookup_;
  Budget budget_;
  std::optional<Token> pending_;  // the next attribute of Metadata, read ahead
  std::vector<int64_t> order_;    // entries as the file has them: tensor t as t, object o as -1 - o
  std::vector<bool> tensor_has_path_, object_has_path_;
  Values shape_, offsets_, sizes_, previous_;
  bool ascending_ = true;  // the offsets of the present tensor's chunks so far
  Token last_name_{Tag::kTensor, 0};
  uint32_t last_file_ = 0;
  int64_t located_chunks_ = 0, located_objects_ = 0;
  uint32_t done_ = 0;  // attributes of Metadata
  std::string stray_name_;
  Strays stray_storage_, stray_paths_;
  bool has_storage_meta_ = false;
};

// An instance after its class: `() NEWOBJ`, a dict and BUILD. Returns the words seen; a second time the same
// is Unusual.
template <typename OnAttribute>
uint32_t FastReader::attributes(OnAttribute on_attribute) {
  uint32_t seen = 0;
  const auto one = [&] {
    const Word word = attribute();
    if (static_cast<uint32_t>(word) >= 32 || (seen & bit(word)) != 0) throw Unusual{};
    seen |= bit(word);
    on_attribute(word);
  };
  bool is_batch = in_.begin_object();
  while (true) {
    if (is_batch) {
      while (!in_.take_if(pickle::kOpSetItems)) one();
      is_batch = false;
    } else if (in_.take_if(pickle::kOpBuild)) {
      return seen;
    } else if (in_.take_if(pickle::kOpMark)) {
      is_batch = true;
    } else {
      one();
      in_.expect(pickle::kOpSetItem);
    }
  }
}

// A dict whose keys are texts; `on_item` reads key and value, or sets pending_ instead.
template <typename OnItem>
void FastReader::text_dict(OnItem on_item) {
  in_.expect(pickle::kOpEmptyDict);
  in_.memoize();
  while (true) {
    if (in_.take_if(pickle::kOpMark)) {
      while (!in_.take_if(pickle::kOpSetItems)) {
        on_item();
        if (pending_) throw Unusual{};
      }
    } else if (!in_.at_name()) {
      return;
    } else {
      on_item();
      if (pending_) return;
      in_.expect(pickle::kOpSetItem);
    }
  }
}

}  // namespace milepost::dcp
