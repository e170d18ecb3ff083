// vocab.json or vocab.txt, and merges.txt.
//
// vocab.txt: a token a line, its number (from 0, empty lines count) the id. merges.txt: two tokens a line,
// lines that begin with '#' are comments. Both as text that Python reads: \r, \n and \r\n end lines,
// whitespace at their ends goes.
#include <fmt/format.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "text/pipeline.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace milepost::text {
namespace {

std::string_view stripped(std::string_view text) {
  text.remove_prefix(leading_whitespace(text));
  text.remove_suffix(trailing_whitespace(text));
  return text;
}

void for_each_line(std::string_view text, const std::function<void(std::string_view)>& visit) {
  if (const size_t bad = find_invalid_utf8(text); bad != std::string_view::npos) {
    throw invalid_utf8(static_cast<int64_t>(bad));
  }
  while (!text.empty()) {
    const size_t end = text.find_first_of("\r\n");
    visit(stripped(text.substr(0, end)));
    if (end == std::string_view::npos) break;
    text.remove_prefix(text.substr(end).starts_with("\r\n") ? end + 2 : end + 1);
  }
}

nlohmann::json vocab_of_lines(std::string_view lines) {
  nlohmann::json vocab = nlohmann::json::object();
  int32_t id = 0;
  for_each_line(lines, [&](std::string_view token) {
    if (!token.empty()) vocab[std::string(token)] = id;
    ++id;
  });
  return vocab;
}

nlohmann::json merges_of_lines(std::string_view lines) {
  nlohmann::json merges = nlohmann::json::array();
  for_each_line(lines, [&](std::string_view line) {
    if (line.empty() || line.starts_with('#')) return;
    std::vector<std::string> names;
    while (!line.empty() && names.size() < 2) {
      size_t end = 0;
      for (size_t at = 0; at < line.size(); end = at) {
        if (is_whitespace(next_code_point(line, &at))) break;
      }
      names.emplace_back(line.substr(0, end));
      line.remove_prefix(end);
      line.remove_prefix(leading_whitespace(line));
    }
    if (names.size() == 2) merges.push_back(names);
  });
  return merges;
}

}  // namespace

std::unique_ptr<Pipeline> read_vocab_files(std::string_view vocab, bool vocab_is_json,
                                           const std::string* merges) {
  nlohmann::json model = {{"vocab", vocab_is_json ? parse_json(vocab) : vocab_of_lines(vocab)},
                          {"unk_token", merges == nullptr ? nlohmann::json("[UNK]") : nlohmann::json()},
                          {"merges", merges == nullptr ? nlohmann::json() : merges_of_lines(*merges)}};
  auto pipeline = std::make_unique<Pipeline>();
  const JsonNode node(model, "");
  if (merges == nullptr) {
    pipeline->model = read_word_level(node);
  } else {
    pipeline->model = read_bpe(node);
    const nlohmann::json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
    read_pre_tokenizers(JsonNode(byte_level, ""), &pipeline->pre_tokenizers);
    read_decoders(JsonNode(byte_level, ""), &pipeline->decoders);
  }
  return pipeline;
}

}  // namespace milepost::text
