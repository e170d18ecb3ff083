// A folder of tokenizer files:
//
// 1. tokenizer.json; else vocab.json, else vocab.txt, with merges.txt when it is there.
// 2. tokenizer_config.json, when it is there: the special tokens "bos_token" to "mask_token" (a string, or an
//    object with "content"), then those of "added_tokens_decoder" ({ID: {"content", ...}}, in the order of
//    the file), are added as special tokens. The ids are those that the tokenizer gives them, not the file's.
// 3. "add_bos_token" and "add_eos_token" are the defaults of encoding.
#include "milepost/text/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "milepost/base/checksum.h"
#include "milepost/base/error.h"
#include "milepost/storage/storage.h"
#include "text/config_tokens.h"
#include "text/pipeline.h"

namespace milepost::text {
namespace {

constexpr int64_t kMaxFileBytes = int64_t{512} << 20;

class LoadedTokenizer final : public Tokenizer {
 public:
  int64_t vocab_size() const override { return vocab_size_; }
  std::optional<int32_t> bos_id() const override { return bos_id_; }
  std::optional<int32_t> eos_id() const override { return eos_id_; }
  bool default_add_bos() const override { return default_add_bos_; }
  bool default_add_eos() const override { return default_add_eos_; }
  bool adds_bos() const override { return adds(bos_id_); }
  bool adds_eos() const override { return adds(eos_id_); }
  std::optional<int32_t> id_of(std::string_view token) const override { return pipeline_->id_of(token); }
  std::optional<std::string> token_of(int32_t id) const override { return pipeline_->token_of(id); }
  const std::vector<std::string>& warnings() const override { return warnings_; }
  std::string fingerprint() const override { return fingerprint_; }
  std::string decode(std::span<const int32_t> ids, bool skip_special) const override {
    return pipeline_->decode(ids, skip_special);
  }
  const Pipeline& pipeline() const override { return *pipeline_; }

  void set_config(const ConfigTokens& config) {
    pipeline_->add_tokens(config.tokens);
    if (config.bos) bos_id_ = pipeline_->id_of(*config.bos);
    if (config.eos) eos_id_ = pipeline_->id_of(*config.eos);
    default_add_bos_ = config.add_bos;
    default_add_eos_ = config.add_eos;
  }

  void finish(const std::string& fingerprint) {
    int32_t largest = pipeline_->model->largest_id();
    if (!pipeline_->added.by_id().empty()) {
      largest = std::max(largest, pipeline_->added.by_id().rbegin()->first);
    }
    vocab_size_ = int64_t{largest} + 1;
    fingerprint_ = fingerprint;
  }

  std::unique_ptr<Pipeline> pipeline_;
  std::vector<std::string> warnings_;

 private:
  // Whether the ids of an empty text hold it.
  bool adds(std::optional<int32_t> id) const {
    const auto holds = [&](const std::vector<int32_t>& ids) {
      return std::find(ids.begin(), ids.end(), *id) != ids.end();
    };
    return id && (holds(pipeline_->before) || holds(pipeline_->after));
  }

  int64_t vocab_size_ = 0;
  std::optional<int32_t> bos_id_, eos_id_;
  bool default_add_bos_ = false, default_add_eos_ = false;
  std::string fingerprint_;
};

// The files of one folder, each read once; what was read is what the fingerprint covers.
class Folder {
 public:
  explicit Folder(const std::string& path) : path_(path), location_(resolve_location(path)) {
    const std::optional<FileInfo> info = location_.storage->stat(location_.path);
    if (!info) {
      throw StorageError(ErrorCode::kNotFound, fmt::format("Tokenizer path '{}' does not exist", path), path);
    }
    if (!info->is_directory) {
      throw StorageError(ErrorCode::kNotFound, fmt::format("Tokenizer path '{}' is not a folder", path),
                         path);
    }
  }

  std::string file_path(std::string_view name) const { return join_path(path_, name); }

  std::optional<std::string> read(std::string_view name) {
    const std::string path = join_path(location_.path, name);
    if (!location_.storage->stat(path)) return std::nullopt;
    const std::unique_ptr<ByteSource> source = location_.storage->open_read(path);
    if (source->size() > kMaxFileBytes) {
      FormatError error(
          ErrorCode::kTooLarge,
          fmt::format("{} bytes are too many for a tokenizer (at most {})", source->size(), kMaxFileBytes));
      throw error.set_path(file_path(name));
    }
    std::string content(static_cast<size_t>(source->size()), '\0');
    source->read_at(0, std::as_writable_bytes(std::span(content)));
    const std::string head = fmt::format("{}:{}\n", name, content.size());
    hash_.update(std::as_bytes(std::span(head)));
    hash_.update(std::as_bytes(std::span(content)));
    return content;
  }

  std::string names() const {
    std::string result;
    for (const FileInfo& file : location_.storage->list(location_.path)) {
      if (file.is_regular) result += (result.empty() ? "" : ", ") + printable(file.name, 60);
    }
    return result.empty() ? "none" : result;
  }

  std::string fingerprint() { return to_hex(hash_.finish()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  StorageLocation location_;
  Sha256 hash_;
};

// Runs `read`; its errors get the file's path.
template <typename Read>
auto reading(const std::string& path, const Read& read) {
  try {
    return read();
  } catch (Error& error) {
    error.set_path(path);
    throw;
  }
}

std::unique_ptr<Pipeline> read_pipeline(Folder* folder, std::vector<std::string>* warnings) {
  if (const std::optional<std::string> json = folder->read("tokenizer.json")) {
    return reading(folder->file_path("tokenizer.json"), [&] { return read_tokenizer_json(*json, warnings); });
  }
  for (const char* name : {"vocab.json", "vocab.txt"}) {
    const std::optional<std::string> vocab = folder->read(name);
    if (!vocab) continue;
    const std::optional<std::string> merges = folder->read("merges.txt");
    const std::string path = folder->file_path(merges ? "merges.txt" : name);
    return reading(path, [&] {
      return read_vocab_files(*vocab, std::string_view(name) == "vocab.json", merges ? &*merges : nullptr);
    });
  }
  throw StorageError(
      ErrorCode::kNotFound,
      fmt::format(
          "No supported tokenizer files found in '{}'. Available files: {}. Looking for: tokenizer.json, "
          "vocab.txt+merges.txt, or vocab.json+merges.txt",
          folder->path(), folder->names()),
      folder->path());
}

}  // namespace

std::shared_ptr<const Tokenizer> Tokenizer::load(const std::string& path) {
  Folder folder(path);
  auto tokenizer = std::make_shared<LoadedTokenizer>();
  tokenizer->pipeline_ = read_pipeline(&folder, &tokenizer->warnings_);
  const char* kConfig = "tokenizer_config.json";
  if (const std::optional<std::string> config = folder.read(kConfig)) {
    reading(folder.file_path(kConfig), [&] { tokenizer->set_config(read_tokenizer_config(*config)); });
  } else {
    tokenizer->warnings_.push_back(fmt::format(
        "No tokenizer_config.json found at {}: no special tokens are known, so documents are not separated",
        path));
  }
  tokenizer->finish(folder.fingerprint());
  return tokenizer;
}

}  // namespace milepost::text
