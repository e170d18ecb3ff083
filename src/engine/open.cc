#include <fmt/format.h>

#include <algorithm>

#include "engine/opened_checkpoint.h"
#include "milepost/base/error.h"
#include "milepost/format/dcp.h"
#include "milepost/format/safetensors.h"

namespace milepost {
namespace {

bool has_file(const std::vector<FileInfo>& listing, std::string_view name) {
  return std::any_of(listing.begin(), listing.end(),
                     [&](const FileInfo& file) { return file.is_regular && file.name == name; });
}

// The names of `listing` that end in `suffix`.
std::vector<std::string> names_with_suffix(const std::vector<FileInfo>& listing, std::string_view suffix) {
  std::vector<std::string> names;
  for (const FileInfo& file : listing) {
    if (file.is_regular && file.name.ends_with(suffix)) names.push_back(file.name);
  }
  return names;
}

std::string joined(const std::vector<std::string>& names, size_t limit = 5) {
  std::string text;
  for (size_t i = 0; i < names.size() && i < limit; ++i)
    text += (i == 0 ? "" : ", ") + printable(names[i], 80);
  if (names.size() > limit) text += fmt::format(" and {} more", names.size() - limit);
  return text;
}

[[noreturn]] void throw_no_checkpoint(const std::string& path, const std::vector<FileInfo>& listing) {
  const std::vector<std::string> data = names_with_suffix(listing, ".distcp");
  const std::vector<std::string> unfinished = names_with_suffix(listing, ".metadata.tmp");
  if (!data.empty() || !unfinished.empty()) {
    std::vector<std::string> there = unfinished;
    there.insert(there.end(), data.begin(), data.end());
    FormatError error(
        ErrorCode::kMissingFile,
        fmt::format("the checkpoint is incomplete: .metadata is missing, there are only {}", joined(there)),
        "the save that wrote it did not finish; use an older checkpoint");
    error.set_path(path);
    throw error;
  }
  std::vector<std::string> steps;
  for (const FileInfo& file : listing) {
    if (file.is_directory && file.name.starts_with("step-")) steps.push_back(file.name);
  }
  StorageError error(
      ErrorCode::kNotFound,
      "there is no checkpoint here: neither .metadata, nor model.safetensors.index.json, nor *.safetensors",
      path);
  if (!steps.empty()) error.set_hint(fmt::format("it holds {}: name one of these", joined(steps)));
  throw error;
}

// The metadata file that is to be read: `.metadata`, or that of a rank.
std::string metadata_name(const std::string& path, const std::vector<FileInfo>& listing, int64_t rank) {
  std::vector<std::string> local;
  for (const std::string& name : names_with_suffix(listing, ".metadata")) {
    if (name.starts_with("__")) local.push_back(name);
  }
  if (rank >= 0) {
    std::string name = fmt::format("__{}.metadata", rank);
    if (has_file(listing, name)) return name;
    ValueError error(fmt::format("rank {} has no metadata of its own here", rank),
                     local.empty() ? "leave the rank out" : "there are " + joined(local));
    error.set_path(path);
    throw error;
  }
  if (has_file(listing, dcp::kMetadataName)) return std::string(dcp::kMetadataName);
  if (local.empty()) return {};
  ValueError error("each rank wrote metadata of its own here (" + joined(local) + ")",
                   "say which with --rank R");
  error.set_path(path);
  throw error;
}

}  // namespace

std::shared_ptr<const Checkpoint> Checkpoint::open(std::string_view path_or_uri, const OpenOptions& options) {
  return open(resolve_location(path_or_uri), options);
}

std::shared_ptr<const Checkpoint> Checkpoint::open(const StorageLocation& location,
                                                   const OpenOptions& options) {
  OpenedParts parts;
  parts.path = location.path;
  parts.storage = location.storage;
  const std::optional<FileInfo> info = location.storage->stat(location.path);
  if (!info) throw StorageError(ErrorCode::kNotFound, "no such file or folder", location.path);
  if (info->is_directory) {
    parts.folder = location.path;
    const std::vector<FileInfo> listing = location.storage->list(location.path);
    const std::string metadata = metadata_name(location.path, listing, options.rank);
    if (!metadata.empty()) {
      open_dcp(parts, listing, metadata);
    } else if (has_file(listing, safetensors::kIndexName) ||
               !names_with_suffix(listing, ".safetensors").empty()) {
      open_safetensors_folder(parts, listing);
    } else {
      throw_no_checkpoint(location.path, listing);
    }
  } else {
    parts.folder = parent_path(location.path);
    const std::string name = base_name(location.path);
    if (!info->is_regular)
      throw StorageError(ErrorCode::kIo, "this is neither a regular file nor a folder", location.path);
    if (name == dcp::kMetadataName || name.ends_with(".distcp")) {
      ValueError error("this is one file of a DCP checkpoint", "give the folder that holds it");
      error.set_path(location.path);
      throw error;
    }
    if (name.ends_with(".safetensors")) {
      open_safetensors_file(parts, name);
    } else if (name.ends_with(safetensors::kIndexName.substr(5))) {
      ValueError error("this is the index of a safetensors checkpoint", "give the folder that holds it");
      error.set_path(location.path);
      throw error;
    } else {
      open_torch_file(parts, name);
    }
  }
  return std::make_shared<OpenedCheckpoint>(std::move(parts));
}

}  // namespace milepost
