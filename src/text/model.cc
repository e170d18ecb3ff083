#include "text/model.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/utf8.h"

namespace milepost::text {
namespace {

class WordLevel final : public Model {
 public:
  WordLevel(TokenIds vocab, std::string unknown) : Model(std::move(vocab)), unknown_(std::move(unknown)) {}

  void tokenize(std::string_view piece, ModelScratch*, std::vector<int32_t>* ids) const override {
    std::optional<int32_t> id = id_of(piece);
    if (!id) id = id_of(unknown_);
    if (!id) {
      FormatError error(ErrorCode::kBadFormat,
                        fmt::format("the vocabulary has neither '{}' nor the unknown token '{}'",
                                    printable(piece, 40), printable(unknown_, 40)));
      error.set_key("/model/unk_token");
      throw error;
    }
    ids->push_back(*id);
  }

 private:
  std::string unknown_;
};

}  // namespace

Model::Model(TokenIds vocab) : vocab_(std::move(vocab)) {
  tokens_.reserve(vocab_.size());
  for (const auto& [token, id] : vocab_) {
    const auto [entry, is_new] = tokens_.emplace(id, &token);
    if (!is_new && token < *entry->second) entry->second = &token;
    largest_id_ = std::max(largest_id_, id);
  }
}

std::optional<int32_t> Model::id_of(std::string_view token) const {
  const auto entry = vocab_.find(token);
  if (entry == vocab_.end()) return std::nullopt;
  return entry->second;
}

const std::string* Model::token_of(int32_t id) const {
  const auto entry = tokens_.find(id);
  return entry == tokens_.end() ? nullptr : entry->second;
}

void Model::tokenize_bytes(std::string_view bytes, ModelScratch* scratch, std::vector<int32_t>* ids) const {
  std::string text = std::move(scratch->text);
  text.clear();
  for (const char byte : bytes) text += byte_characters()[static_cast<uint8_t>(byte)];
  tokenize(text, scratch, ids);
  scratch->text = std::move(text);
}

TokenIds read_vocab(const JsonNode& node) {
  TokenIds vocab;
  node.for_each_member([&](const std::string& token, const JsonNode& id) {
    vocab.emplace(token, static_cast<int32_t>(id.integer(0, INT32_MAX - 1)));
  });
  return vocab;
}

std::unique_ptr<Model> read_word_level(const JsonNode& node) {
  return std::make_unique<WordLevel>(read_vocab(node.at("vocab")), node.at("unk_token").text());
}

}  // namespace milepost::text
