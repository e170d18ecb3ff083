#include "storage/overwrite_guard.h"

#include <algorithm>
#include <array>

#include "milepost/base/bytes.h"

namespace milepost {
namespace {

// Patterns with at most one '*', which stands for anything. "*.metadata" includes ".metadata".
constexpr std::array<std::string_view, 20> kNames = {
    "*.metadata",
    "*.metadata.tmp",
    "*.distcp",
    "*.safetensors",
    "*.index.json",
    "config.json",
    "generation_config.json",
    "tokenizer*.json",
    "tokenizer.model",
    "vocab.*",
    "merges.txt",
    "special_tokens_map.json",
    "chat_template*",
    "*.pt",
    "*.pth",
    "*.bin",
    "*.md",
    "LICENSE*",
    ".gitattributes",
    "_checkpoint_hash_manifest.*",
};
constexpr std::string_view kShardedFolder = "sharded";

bool matches(std::string_view pattern, std::string_view name) {
  const size_t star = pattern.find('*');
  if (star == std::string_view::npos) return pattern == name;
  const std::string_view head = pattern.substr(0, star), tail = pattern.substr(star + 1);
  return name.size() >= head.size() + tail.size() && name.starts_with(head) && name.ends_with(tail);
}

}  // namespace

bool is_checkpoint_file_name(std::string_view name) {
  return std::any_of(kNames.begin(), kNames.end(),
                     [&](std::string_view pattern) { return matches(pattern, name); });
}

bool is_checkpoint_file(Storage& storage, const std::string& path) {
  const std::unique_ptr<ByteSource> file = storage.open_read(path);
  std::array<std::byte, 9> head{};
  const int64_t length = std::min<int64_t>(file->size(), head.size());
  if (length == 0) return true;
  file->read_at(0, MutableBytes(head).first(static_cast<size_t>(length)));
  const std::string_view text = as_text(head);
  const bool is_zip = text.starts_with("PK\3\4");
  const bool is_pickle = text.starts_with('\x80');  // torch.save before version 1.6
  // A length in 8 bytes, at most 100 MB, then a JSON object.
  const bool is_safetensors = text.substr(4) == std::string_view("\0\0\0\0{", 5);
  return is_zip || is_pickle || is_safetensors;
}

std::optional<std::string> find_stranger(Storage& storage, const std::string& folder) {
  for (const FileInfo& info : storage.list(folder)) {
    if (info.is_regular && is_checkpoint_file_name(info.name)) continue;
    if (!info.is_directory || info.name != kShardedFolder) return info.name;
    for (const FileInfo& shard : storage.list(join_path(folder, info.name))) {
      if (!shard.is_regular || !shard.name.ends_with(".safetensors")) return join_path(info.name, shard.name);
    }
  }
  return std::nullopt;
}

}  // namespace milepost
