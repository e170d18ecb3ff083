// The hash manifest: {"algorithm": "sha256", "granularity": "file", "hash": {FILE: 64 hex digits, ...}},
// indent 2, keys sorted.
#include "milepost/format/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "format/json_events.h"
#include "format/json_text.h"
#include "format/plain_name.h"
#include "milepost/base/error.h"

namespace milepost::manifest {
namespace {

constexpr int64_t kMaxBytes = int64_t{256} << 20;  // a million files
constexpr size_t kHexDigits = 64;

class ManifestEvents final : public JsonEvents {
 public:
  explicit ManifestEvents(Hashes* hashes) : hashes_(hashes) {}

  void key(int depth, std::string& name) override {
    if (depth == 1) {
      member_ = name == "algorithm"     ? kAlgorithm
                : name == "granularity" ? kGranularity
                : name == "hash"        ? kHash
                                        : kOther;
      if (member_ != kOther && std::exchange(seen_[member_], true)) {
        throw CheckpointManifestError(fmt::format("'{}' occurs twice", name));
      }
    } else if (depth == 2 && member_ == kHash) {
      if (!is_plain_name(name)) {
        throw CheckpointManifestError(fmt::format("'{}' is not a plain name in the folder", printable(name)));
      }
      file_ = std::move(name);
    }
  }

  void value(int depth, const JsonValue& value) override {
    if (depth == 0 && value.kind != JsonKind::kObject) throw CheckpointManifestError("not a JSON object");
    if (depth == 1 && member_ == kAlgorithm) demand(value, "algorithm", "sha256");
    if (depth == 1 && member_ == kGranularity) demand(value, "granularity", "file");
    if (depth == 1 && member_ == kHash && value.kind != JsonKind::kObject) {
      throw CheckpointManifestError("'hash' is not a mapping of file names to digests");
    }
    if (depth == 2 && member_ == kHash) add(value);
  }

  void end(int) override {}

  void check_complete() const {
    constexpr const char* kNames[] = {"algorithm", "granularity", "hash"};
    for (int i = 0; i < kOther; ++i) {
      if (!seen_[i]) throw CheckpointManifestError(fmt::format("'{}' is missing", kNames[i]));
    }
  }

 private:
  enum Member : uint8_t { kAlgorithm, kGranularity, kHash, kOther };

  static void demand(const JsonValue& value, std::string_view member, std::string_view wanted) {
    if (value.kind == JsonKind::kString && *value.text == wanted) return;
    const std::string found =
        value.kind == JsonKind::kString ? "'" + printable(*value.text, 40) + "'" : "no string";
    throw CheckpointManifestError(fmt::format("'{}' is {}, not '{}'", member, found, wanted),
                                  "write the manifest anew: milepost manifest write");
  }

  void add(const JsonValue& value) {
    const auto is_hex = [](unsigned char c) { return std::isxdigit(c) != 0; };
    if (value.kind != JsonKind::kString || value.text->size() != kHexDigits ||
        !std::all_of(value.text->begin(), value.text->end(), is_hex)) {
      throw CheckpointManifestError(fmt::format("the digest of '{}' is not 64 hex digits", printable(file_)));
    }
    for (char& c : *value.text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    hashes_->emplace_back(std::move(file_), std::move(*value.text));
  }

  Hashes* hashes_;
  std::string file_;
  Member member_ = kOther;
  bool seen_[kOther] = {};
};

Hashes parse(const ByteSource& file) {
  Hashes hashes;
  ManifestEvents events(&hashes);
  try {
    parse_json(read_all(file, kMaxBytes), 0, events);
  } catch (const FormatError& error) {
    CheckpointManifestError translated(error.summary());
    if (error.offset() >= 0) translated.set_offset(error.offset());
    throw translated;
  }
  events.check_complete();
  std::sort(hashes.begin(), hashes.end());
  const auto same_name = [](const auto& a, const auto& b) { return a.first == b.first; };
  const auto twice = std::adjacent_find(hashes.begin(), hashes.end(), same_name);
  if (twice != hashes.end()) {
    throw CheckpointManifestError(fmt::format("'{}' occurs twice", printable(twice->first)));
  }
  return hashes;
}

}  // namespace

std::string write(const Hashes& hashes) {
  Hashes sorted = hashes;
  std::sort(sorted.begin(), sorted.end());
  std::string text = "{\n  \"algorithm\": \"sha256\",\n  \"granularity\": \"file\",\n  \"hash\": {";
  for (size_t i = 0; i < sorted.size(); ++i) {
    const auto& [name, digest] = sorted[i];
    if (!is_utf8(name)) {
      throw CheckpointManifestError(
          fmt::format("the file name '{}' is not UTF-8, which JSON demands", printable(name)),
          "rename the file");
    }
    text += i == 0 ? "\n    " : ",\n    ";
    append_json_string(&text, name, JsonEscapes::kNonAscii);
    text += ": ";
    append_json_string(&text, digest, JsonEscapes::kNonAscii);
  }
  text += sorted.empty() ? "}\n}" : "\n  }\n}";
  return text;
}

Hashes read(const ByteSource& file) {
  try {
    return parse(file);
  } catch (Error& error) {
    error.set_path(file.name());
    throw;
  }
}

}  // namespace milepost::manifest
