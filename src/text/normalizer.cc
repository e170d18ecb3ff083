#include "text/normalizer.h"

#include "text/regex.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace milepost::text {
namespace {

class ToNormalForm final : public Normalizer {
 public:
  explicit ToNormalForm(NormalForm form) : form_(form) {}
  void apply(NormalText* text) const override {
    std::string normal;
    if (to_normal_form(form_, text->text, &normal)) text->text = std::move(normal);
  }
  bool is_local() const override { return true; }

 private:
  NormalForm form_;
};

class Lowercase final : public Normalizer {
 public:
  void apply(NormalText* text) const override {
    std::string lower;
    lower.reserve(text->text.size());
    for (size_t at = 0; at < text->text.size();) append_lowercase(next_code_point(text->text, &at), &lower);
    text->text = std::move(lower);
  }
  bool is_local() const override { return true; }
};

class Prepend final : public Normalizer {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}
  void apply(NormalText* text) const override {
    if (!text->text.empty()) text->text.insert(0, prefix_);
  }
  bool is_local() const override { return false; }

 private:
  std::string prefix_;
};

class Replace final : public Normalizer {
 public:
  Replace(Regex regex, std::string content, bool is_local)
      : regex_(std::move(regex)), content_(std::move(content)), is_local_(is_local) {}

  void apply(NormalText* text) const override {
    if (text->text.empty()) return;
    RegexScratch scratch;
    MatchWalk walk(regex_, text->text, &scratch);
    std::string replaced;
    MatchRange range;
    while (walk.next(&range)) {
      if (range.is_match) {
        if (range.begin == 0 && range.end > 0 && content_.empty()) text->keeps_start = false;
        replaced += content_;
      } else {
        replaced.append(text->text, range.begin, range.end - range.begin);
      }
    }
    text->text = std::move(replaced);
  }
  bool is_local() const override { return is_local_; }

 private:
  Regex regex_;
  std::string content_;
  bool is_local_;
};

class Strip final : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  void apply(NormalText* text) const override {
    if (right_) text->text.resize(text->text.size() - trailing_whitespace(text->text));
    const size_t leading = left_ ? leading_whitespace(text->text) : 0;
    if (leading > 0) text->keeps_start = false;
    text->text.erase(0, leading);
  }
  bool is_local() const override { return false; }

 private:
  bool left_, right_;
};

class MapBytes final : public Normalizer {
 public:
  void apply(NormalText* text) const override {
    std::string mapped;
    for (const char byte : text->text) mapped += byte_characters()[static_cast<uint8_t>(byte)];
    text->text = std::move(mapped);
  }
  bool is_local() const override { return true; }
};

std::unique_ptr<Normalizer> read_replace(const JsonNode& node) {
  const JsonNode pattern = node.at("pattern");
  // A literal without a line feed cannot lie across a cut after one.
  const std::optional<JsonNode> literal = pattern.find("String");
  const bool is_local =
      literal && !literal->text().empty() && literal->text().find('\n') == std::string::npos;
  return std::make_unique<Replace>(read_regex(pattern), node.at("content").text(), is_local);
}

}  // namespace

void read_normalizers(const JsonNode& node, std::vector<std::unique_ptr<Normalizer>>* normalizers) {
  const JsonNode type = node.at("type");
  const std::string& name = type.text();
  if (name == "Sequence") {
    const JsonNode parts = node.at("normalizers");
    for (size_t i = 0; i < parts.size(); ++i) read_normalizers(parts.at(i), normalizers);
  } else if (name == "NFC") {
    normalizers->push_back(std::make_unique<ToNormalForm>(NormalForm::kNfc));
  } else if (name == "NFD") {
    normalizers->push_back(std::make_unique<ToNormalForm>(NormalForm::kNfd));
  } else if (name == "NFKC") {
    normalizers->push_back(std::make_unique<ToNormalForm>(NormalForm::kNfkc));
  } else if (name == "NFKD") {
    normalizers->push_back(std::make_unique<ToNormalForm>(NormalForm::kNfkd));
  } else if (name == "Lowercase") {
    normalizers->push_back(std::make_unique<Lowercase>());
  } else if (name == "Prepend") {
    normalizers->push_back(std::make_unique<Prepend>(node.at("prepend").text()));
  } else if (name == "Replace") {
    normalizers->push_back(read_replace(node));
  } else if (name == "Strip") {
    normalizers->push_back(
        std::make_unique<Strip>(node.flag("strip_left", true), node.flag("strip_right", true)));
  } else if (name == "ByteLevel") {
    normalizers->push_back(std::make_unique<MapBytes>());
  } else {
    throw type.unknown("normalizer", name);
  }
}

}  // namespace milepost::text
