#include "text/config_tokens.h"

#include <charconv>
#include <nlohmann/json.hpp>

#include "text/json_node.h"

namespace milepost::text {
namespace {

// The names in "added_tokens_decoder" as they follow each other in the file: nlohmann::json sorts them.
std::vector<std::string> decoder_order(std::string_view json) {
  std::vector<std::string> order;
  std::string top;
  using Json = nlohmann::json;
  const auto see = [&](int depth, Json::parse_event_t event, const Json& parsed) {
    if (event != Json::parse_event_t::key) return true;
    if (depth == 1) top = parsed.get_ref<const std::string&>();
    if (depth == 2 && top == "added_tokens_decoder") order.push_back(parsed.get_ref<const std::string&>());
    return depth <= 2;
  };
  [[maybe_unused]] const Json ignored = Json::parse(json.begin(), json.end(), see);
  return order;
}

AddedToken read_token(const JsonNode& node) {
  AddedToken token;
  token.special = true;
  if (node.is_string()) {
    token.content = node.text();
    return token;
  }
  token.content = node.at("content").text();
  token.single_word = node.flag("single_word", false);
  token.lstrip = node.flag("lstrip", false);
  token.rstrip = node.flag("rstrip", false);
  token.normalized = node.flag("normalized", true);
  return token;
}

// As Python's bool(): null, false, 0 and what is empty are false.
bool is_true(const nlohmann::json& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number()) return value.get<double>() != 0;
  return value.is_string() ? !value.get_ref<const std::string&>().empty() : !value.empty();
}

void add_decoder_tokens(const JsonNode& decoder, std::string_view json, std::vector<AddedToken>* tokens) {
  for (const std::string& id : decoder_order(json)) {
    const std::optional<JsonNode> node = decoder.find(id);
    if (!node || !node->is_object() || !node->find("content")) continue;
    int64_t number = 0;
    const auto [end, error] = std::from_chars(id.data(), id.data() + id.size(), number);
    if (error != std::errc() || end != id.data() + id.size()) {
      throw node->error(ErrorCode::kBadFormat, "want an id as the name of a token");
    }
    tokens->push_back(read_token(*node));
  }
}

}  // namespace

ConfigTokens read_tokenizer_config(std::string_view json) {
  const nlohmann::json document = parse_json(json);
  const JsonNode root(document, "");
  ConfigTokens config;
  for (const char* name :
       {"bos_token", "eos_token", "pad_token", "unk_token", "sep_token", "cls_token", "mask_token"}) {
    const std::optional<JsonNode> node = root.find(name);
    if (!node) continue;
    if (!node->is_string() && !node->is_object()) {
      throw node->error(ErrorCode::kBadFormat, "want a token: a string, or an object with \"content\"");
    }
    config.tokens.push_back(read_token(*node));
    if (std::string_view(name) == "bos_token") config.bos = config.tokens.back().content;
    if (std::string_view(name) == "eos_token") config.eos = config.tokens.back().content;
  }
  if (const auto decoder = root.find("added_tokens_decoder"))
    add_decoder_tokens(*decoder, json, &config.tokens);
  config.add_bos = document.contains("add_bos_token") && is_true(document["add_bos_token"]);
  config.add_eos = document.contains("add_eos_token") && is_true(document["add_eos_token"]);
  return config;
}

}  // namespace milepost::text
