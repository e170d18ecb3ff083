#include "text/pipeline.h"

namespace milepost::text {

std::optional<int32_t> Pipeline::id_of(std::string_view token) const {
  const std::optional<int32_t> added_id = added.id_of(token);
  return added_id ? added_id : model->id_of(token);
}

std::optional<std::string> Pipeline::token_of(int32_t id) const {
  if (const AddedToken* token = added.token_of(id)) return token->content;
  const std::string* token = model->token_of(id);
  if (token == nullptr) return std::nullopt;
  return *token;
}

void Pipeline::normalize(NormalText* text) const {
  for (const std::unique_ptr<Normalizer>& normalizer : normalizers) normalizer->apply(text);
}

std::string Pipeline::decode(std::span<const int32_t> ids, bool skip_special) const {
  std::vector<std::string> tokens;
  for (const int32_t id : ids) {
    std::optional<std::string> token = token_of(id);
    if (!token || (skip_special && added.is_special(*token))) continue;
    tokens.push_back(std::move(*token));
  }
  for (const std::unique_ptr<Decoder>& decoder : decoders) decoder->apply(&tokens);
  std::string text;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0 && decoders.empty()) text += ' ';
    text += tokens[i];
  }
  return text;
}

void Pipeline::add_tokens(const std::vector<AddedToken>& tokens) {
  added.add(tokens, model->vocab(), static_cast<int32_t>(model->vocab().size()));
  added.build_matchers([this](const std::string& content) {
    NormalText text = {content, true};
    normalize(&text);
    return text.text;
  });
}

}  // namespace milepost::text
