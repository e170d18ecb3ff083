#include "storage/overwrite_guard.h"

#include <algorithm>
#include <array>

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
