#include "text/decoder.h"

#include <algorithm>
#include <cctype>

#include "text/regex.h"
#include "text/utf8.h"

namespace milepost::text {
namespace {

constexpr std::string_view kReplacementCharacter = "\uFFFD";

// Characters of the byte alphabet back to bytes; a token that holds others stays as it is.
class ByteLevel final : public Decoder {
 public:
  void apply(std::vector<std::string>* tokens) const override {
    std::string bytes, mapped;
    for (const std::string& token : *tokens) bytes += map(token, &mapped) ? mapped : token;
    tokens->assign(1, replace_invalid_utf8(bytes));
  }

 private:
  static bool map(const std::string& token, std::string* mapped) {
    mapped->clear();
    for (size_t at = 0; at < token.size();) {
      const int byte = byte_of_character(next_code_point(token, &at));
      if (byte < 0) return false;
      mapped->push_back(static_cast<char>(byte));
    }
    return true;
  }
};

// Runs of <0x00> to <0xFF> become text, or one U+FFFD for each when they are not UTF-8.
class ByteFallback final : public Decoder {
 public:
  void apply(std::vector<std::string>* tokens) const override {
    std::vector<std::string> decoded;
    std::string bytes;
    const auto end_run = [&] {
      if (find_invalid_utf8(bytes) == std::string::npos) {
        if (!bytes.empty()) decoded.push_back(bytes);
      } else {
        decoded.insert(decoded.end(), bytes.size(), std::string(kReplacementCharacter));
      }
      bytes.clear();
    };
    for (const std::string& token : *tokens) {
      if (const int byte = byte_of(token); byte >= 0) {
        bytes.push_back(static_cast<char>(byte));
      } else {
        end_run();
        decoded.push_back(token);
      }
    }
    end_run();
    *tokens = std::move(decoded);
  }

 private:
  static int byte_of(const std::string& token) {
    if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
    if (std::isxdigit(static_cast<unsigned char>(token[3])) == 0) return -1;
    if (std::isxdigit(static_cast<unsigned char>(token[4])) == 0) return -1;
    return std::stoi(token.substr(3, 2), nullptr, 16);
  }
};

class Fuse final : public Decoder {
 public:
  void apply(std::vector<std::string>* tokens) const override {
    std::string all;
    for (const std::string& token : *tokens) all += token;
    tokens->assign(1, std::move(all));
  }
};

// Up to `start` times a character from the beginning of each token, and up to `stop` times from its end.
class Strip final : public Decoder {
 public:
  Strip(std::string character, int64_t start, int64_t stop)
      : character_(std::move(character)), start_(start), stop_(stop) {}
  void apply(std::vector<std::string>* tokens) const override {
    for (std::string& token : *tokens) {
      for (int64_t i = 0; i < start_ && token.starts_with(character_); ++i) token.erase(0, character_.size());
      for (int64_t i = 0; i < stop_ && token.ends_with(character_); ++i) {
        token.resize(token.size() - character_.size());
      }
    }
  }

 private:
  std::string character_;
  int64_t start_, stop_;
};

class Replace final : public Decoder {
 public:
  Replace(Regex regex, std::string content) : regex_(std::move(regex)), content_(std::move(content)) {}
  void apply(std::vector<std::string>* tokens) const override {
    RegexScratch scratch;
    for (std::string& token : *tokens) {
      if (token.empty()) continue;
      MatchWalk walk(regex_, token, &scratch);
      std::string replaced;
      MatchRange range;
      while (walk.next(&range)) {
        replaced += range.is_match ? content_ : token.substr(range.begin, range.end - range.begin);
      }
      token = std::move(replaced);
    }
  }

 private:
  Regex regex_;
  std::string content_;
};

class Metaspace final : public Decoder {
 public:
  Metaspace(std::string replacement, bool drops_first)
      : replacement_(std::move(replacement)), drops_first_(drops_first) {}
  void apply(std::vector<std::string>* tokens) const override {
    for (size_t i = 0; i < tokens->size(); ++i) {
      std::string& token = (*tokens)[i];
      const std::string_view space = i == 0 && drops_first_ ? "" : " ";
      for (size_t at = token.find(replacement_); at != std::string::npos; at = token.find(replacement_, at)) {
        token.replace(at, replacement_.size(), space);
        at += space.size();
      }
    }
  }

 private:
  std::string replacement_;
  bool drops_first_;
};

// The end of a word's suffix becomes a space, but in the last token.
class WordSuffix final : public Decoder {
 public:
  explicit WordSuffix(std::string suffix) : suffix_(std::move(suffix)) {}
  void apply(std::vector<std::string>* tokens) const override {
    for (size_t i = 0; i < tokens->size(); ++i) {
      std::string& token = (*tokens)[i];
      const std::string_view space = i + 1 == tokens->size() ? "" : " ";
      for (size_t at = token.find(suffix_); at != std::string::npos; at = token.find(suffix_, at)) {
        token.replace(at, suffix_.size(), space);
        at += space.size();
      }
    }
  }

 private:
  std::string suffix_;
};

std::string read_filled(const JsonNode& node, std::string_view name, std::string_view otherwise) {
  std::string text = node.text(name).value_or(std::string(otherwise));
  if (text.empty()) throw node.error(ErrorCode::kBadFormat, "want a text that is not empty");
  return text;
}

}  // namespace

void read_decoders(const JsonNode& node, std::vector<std::unique_ptr<Decoder>>* decoders) {
  const JsonNode type = node.at("type");
  const std::string& name = type.text();
  if (name == "Sequence") {
    const JsonNode parts = node.at("decoders");
    for (size_t i = 0; i < parts.size(); ++i) read_decoders(parts.at(i), decoders);
  } else if (name == "ByteLevel") {
    decoders->push_back(std::make_unique<ByteLevel>());
  } else if (name == "ByteFallback") {
    decoders->push_back(std::make_unique<ByteFallback>());
  } else if (name == "Fuse") {
    decoders->push_back(std::make_unique<Fuse>());
  } else if (name == "Strip") {
    constexpr int64_t kMaxCount = 1000;
    decoders->push_back(std::make_unique<Strip>(read_filled(node, "content", " "),
                                                node.at("start").integer(0, kMaxCount),
                                                node.at("stop").integer(0, kMaxCount)));
  } else if (name == "Replace") {
    decoders->push_back(std::make_unique<Replace>(read_regex(node.at("pattern")), node.at("content").text()));
  } else if (name == "Metaspace") {
    const bool is_never =
        node.text("prepend_scheme").value_or("always") == "never" || !node.flag("add_prefix_space", true);
    decoders->push_back(std::make_unique<Metaspace>(read_filled(node, "replacement", "\u2581"), !is_never));
  } else if (name == "BPEDecoder") {
    decoders->push_back(std::make_unique<WordSuffix>(read_filled(node, "suffix", "</w>")));
  } else {
    throw type.unknown("decoder", name);
  }
}

}  // namespace milepost::text
