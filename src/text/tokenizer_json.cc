// tokenizer.json, as the `tokenizers` package writes it:
//
// 1. "added_tokens": tokens in the order in which they were added. Their ids follow from that order and the
//    model; the ids in the file are only compared with them.
// 2. "normalizer", "pre_tokenizer", "post_processor", "decoder": null or a component, {"type": NAME, ...}.
//    {"type": "Sequence"} holds others.
// 3. "model": {"type": "BPE" or "WordLevel", "vocab": {TOKEN: ID}, ...}. Old files leave the type of BPE out.
// 4. "truncation" and "padding" would change ids and must be null.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "text/pipeline.h"

namespace milepost::text {
namespace {

AddedToken read_added_token(const JsonNode& node) {
  AddedToken token;
  token.content = node.at("content").text();
  token.single_word = node.flag("single_word", false);
  token.lstrip = node.flag("lstrip", false);
  token.rstrip = node.flag("rstrip", false);
  token.special = node.flag("special", false);
  token.normalized = node.flag("normalized", !token.special);
  return token;
}

// One side of a template's text: what stands before it or after it.
void read_template_part(const JsonNode& part, const JsonNode& specials, bool* seen_text, Pipeline* pipeline) {
  if (const std::optional<JsonNode> sequence = part.find("Sequence")) {
    if (sequence->at("id").text() != "A" || std::exchange(*seen_text, true)) {
      throw sequence->error(ErrorCode::kUnsupported, "want the text, A, once");
    }
    return;
  }
  const JsonNode name = part.at("SpecialToken").at("id");
  const std::optional<JsonNode> special = specials.find(name.text());
  if (!special) throw name.error(ErrorCode::kBadFormat, "special_tokens lacks it");
  const JsonNode ids = special->at("ids");
  std::vector<int32_t> read;
  for (size_t i = 0; i < ids.size(); ++i) {
    read.push_back(static_cast<int32_t>(ids.at(i).integer(0, INT32_MAX - 1)));
  }
  std::vector<int32_t>& side = *seen_text ? pipeline->after : pipeline->before;
  side.insert(side.end(), read.begin(), read.end());
}

void read_template(const JsonNode& node, Pipeline* pipeline) {
  Pipeline around;
  bool seen_text = false;
  const JsonNode parts = node.at("single");
  const JsonNode specials = node.at("special_tokens");
  for (size_t i = 0; i < parts.size(); ++i) read_template_part(parts.at(i), specials, &seen_text, &around);
  if (!seen_text) throw parts.error(ErrorCode::kUnsupported, "want the text, A, once");
  pipeline->before.insert(pipeline->before.begin(), around.before.begin(), around.before.end());
  pipeline->after.insert(pipeline->after.end(), around.after.begin(), around.after.end());
}

void read_post_processor(const JsonNode& node, Pipeline* pipeline) {
  const JsonNode type = node.at("type");
  if (type.text() == "Sequence") {
    const JsonNode parts = node.at("processors");
    for (size_t i = 0; i < parts.size(); ++i) read_post_processor(parts.at(i), pipeline);
  } else if (type.text() == "TemplateProcessing") {
    read_template(node, pipeline);
  } else if (type.text() != "ByteLevel") {  // which changes offsets only
    throw type.unknown("post-processor", type.text());
  }
}

std::unique_ptr<Model> read_model(const JsonNode& node) {
  const std::optional<JsonNode> type = node.find("type");
  const std::string name = type ? type->text() : node.find("merges") ? "BPE" : "";
  if (name == "BPE") return read_bpe(node);
  if (name == "WordLevel") return read_word_level(node);
  throw node.at("type").unknown("model", name);
}

void read_added_tokens(const JsonNode& node, Pipeline* pipeline, std::vector<std::string>* warnings) {
  std::vector<AddedToken> tokens;
  for (size_t i = 0; i < node.size(); ++i) tokens.push_back(read_added_token(node.at(i)));
  pipeline->add_tokens(tokens);
  for (size_t i = 0; i < node.size(); ++i) {
    const std::optional<JsonNode> id = node.at(i).find("id");
    const std::optional<int32_t> used = pipeline->id_of(tokens[i].content);
    if (!id || !used || id->integer(0, UINT32_MAX) == *used) continue;
    warnings->push_back(fmt::format("{}: the file says {}, but '{}' gets id {}", id->pointer(),
                                    id->integer(0, UINT32_MAX), printable(tokens[i].content, 60), *used));
  }
}

}  // namespace

std::unique_ptr<Pipeline> read_tokenizer_json(std::string_view json, std::vector<std::string>* warnings) {
  const nlohmann::json document = parse_json(json);
  const JsonNode root(document, "");
  auto pipeline = std::make_unique<Pipeline>();
  for (const char* name : {"truncation", "padding"}) {
    if (const std::optional<JsonNode> part = root.find(name)) {
      throw part->error(ErrorCode::kUnsupported, "it would change the ids of texts", "set it to null");
    }
  }
  if (const auto node = root.find("normalizer")) read_normalizers(*node, &pipeline->normalizers);
  if (const auto node = root.find("pre_tokenizer")) read_pre_tokenizers(*node, &pipeline->pre_tokenizers);
  if (const auto node = root.find("post_processor")) read_post_processor(*node, pipeline.get());
  if (const auto node = root.find("decoder")) read_decoders(*node, &pipeline->decoders);
  pipeline->model = read_model(root.at("model"));
  if (const auto node = root.find("added_tokens")) read_added_tokens(*node, pipeline.get(), warnings);
  return pipeline;
}

}  // namespace milepost::text
