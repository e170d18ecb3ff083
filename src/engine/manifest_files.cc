#include "milepost/engine/manifest_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <system_error>
#include <unordered_map>
#include <unordered_set>

#include "engine/hash_files.h"
#include "milepost/base/error.h"
#include "milepost/storage/lasting.h"
#include "milepost/storage/storage.h"

namespace milepost {
namespace {

std::vector<FileInfo> covered_files(Storage& storage, const std::string& folder) {
  std::vector<FileInfo> files = storage.list(folder);
  std::erase_if(files, [](const FileInfo& file) {
    return !file.is_regular || file.name == manifest::kManifestName || file.name == manifest::kPendingName;
  });
  return files;
}

void require_folder(const StorageLocation& location) {
  const std::optional<FileInfo> info = location.storage->stat(location.path);
  if (!info) throw StorageError(ErrorCode::kNotFound, "no such folder", location.path);
  if (!info->is_directory) {
    ValueError error("a manifest describes a folder, and this is a file", "name the folder that holds it");
    error.set_path(location.path);
    throw error;
  }
}

// The files of a share, in the order given: the largest go first, each to who has least.
std::vector<FileInfo> share_of(const std::vector<FileInfo>& files, const ManifestOptions& options) {
  std::vector<size_t> order(files.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return files[a].size_bytes > files[b].size_bytes; });
  std::vector<int64_t> bytes(static_cast<size_t>(options.num_shares), 0);
  std::vector<bool> is_own(files.size());
  for (const size_t file : order) {
    const auto least = std::min_element(bytes.begin(), bytes.end());
    is_own[file] = least - bytes.begin() == options.share;
    *least += files[file].size_bytes;
  }
  std::vector<FileInfo> own;
  for (size_t i = 0; i < files.size(); ++i) {
    if (is_own[i]) own.push_back(files[i]);
  }
  return own;
}

manifest::Hashes hash_covered(const StorageLocation& location, const ManifestOptions& options) {
  const std::vector<FileInfo> files = covered_files(*location.storage, location.path);
  const std::vector<HashedFile> hashed =
      hash_files(*location.storage, location.path, files, options.num_threads, options.progress);
  manifest::Hashes hashes;
  for (size_t i = 0; i < files.size(); ++i) {
    if (hashed[i].failure) std::rethrow_exception(hashed[i].failure);
    hashes.emplace_back(files[i].name, to_hex(hashed[i].digest));
  }
  return hashes;
}

std::string reason(const StorageError& error) {
  return error.error_number() == 0 ? error.summary() : std::generic_category().message(error.error_number());
}

manifest::Hashes read_manifest(Storage& storage, const std::string& path) {
  try {
    return manifest::read(*storage.open_read(path));
  } catch (const StorageError& error) {
    if (!is_lasting(error)) throw;
    CheckpointManifestError unreadable(
        fmt::format("{} cannot be read: {}", manifest::kManifestName, reason(error)), error.hint());
    unreadable.set_path(path);
    throw unreadable;
  }
}

ManifestCheck::Listing listing_of(const std::vector<FileInfo>& files) {
  ManifestCheck::Listing listing;
  Sha256 digest;
  for (const FileInfo& file : files) {
    ++listing.files;
    listing.bytes += file.size_bytes;
    digest.update(as_bytes(fmt::format("{} {}\n", file.name, file.size_bytes)));
  }
  listing.digest = to_hex(digest.finish());
  return listing;
}

// What is wrong with a file; empty: nothing.
std::string difference(const HashedFile& hashed, std::string_view want) {
  if (hashed.failure) {
    try {
      std::rethrow_exception(hashed.failure);
    } catch (const StorageError& error) {
      if (!is_lasting(error)) throw;
      return fmt::format("cannot be read ({})", reason(error));
    }
  }
  const std::string got = to_hex(hashed.digest);
  if (got == want) return {};
  return fmt::format("hash mismatch (expected {}..., got {}...)", want.substr(0, 16), got.substr(0, 16));
}

void write_synced(Storage& storage, const std::string& path, std::string_view content) {
  const auto file = storage.open_write(path, {static_cast<int64_t>(content.size()), false});
  const Bytes bytes = as_bytes(content);
  file->write_at(0, {&bytes, 1});
  file->sync();
  file->close();
}

void replace_synced(Storage& storage, const std::string& folder, std::string_view name,
                    std::string_view content) {
  const std::string temporary = join_path(folder, fmt::format("{}.tmp", name));
  write_synced(storage, temporary, content);
  storage.rename(temporary, join_path(folder, name));
  storage.sync_directory(folder);
}

using Listed = std::unordered_map<std::string_view, const std::string*>;

void hash_share(const StorageLocation& location, const std::vector<FileInfo>& all, const Listed& listed,
                const ManifestOptions& options, ManifestCheck* check) {
  const std::vector<FileInfo> files = share_of(all, options);
  const std::vector<HashedFile> hashed =
      hash_files(*location.storage, location.path, files, options.num_threads, options.progress);
  for (size_t i = 0; i < files.size(); ++i) {
    ++check->files;
    check->bytes += files[i].size_bytes;
    const std::string fault = difference(hashed[i], *listed.at(files[i].name));
    if (!fault.empty()) check->mismatched.push_back(fmt::format("{}: {}", files[i].name, fault));
  }
}

}  // namespace

manifest::Hashes hash_folder(const StorageLocation& location, const ManifestOptions& options) {
  require_folder(location);
  return hash_covered(location, options);
}

manifest::Hashes write_manifest(const StorageLocation& location, const ManifestOptions& options) {
  require_folder(location);
  // A temporary manifest that an interrupted run left must not be listed in the new one.
  const std::string temporary = fmt::format("{}.tmp", manifest::kManifestName);
  location.storage->remove_file(join_path(location.path, temporary));
  manifest::Hashes hashes = hash_covered(location, options);
  replace_synced(*location.storage, location.path, manifest::kManifestName, manifest::write(hashes));
  const std::string pending = join_path(location.path, manifest::kPendingName);
  if (location.storage->stat(pending)) {
    location.storage->remove_file(pending);
    location.storage->sync_directory(location.path);
  }
  return hashes;
}

void mark_pending(Storage& storage, const std::string& folder) {
  write_synced(storage, join_path(folder, manifest::kPendingName), "pending\n");
}

void publish_manifest(Storage& storage, const std::string& folder, const manifest::Hashes& hashes) {
  write_synced(storage, join_path(folder, manifest::kManifestName), manifest::write(hashes));
  storage.remove_file(join_path(folder, manifest::kPendingName));
}

ManifestCheck check_manifest(const StorageLocation& location, const ManifestOptions& options) {
  require_folder(location);
  Storage& storage = *location.storage;
  if (storage.stat(join_path(location.path, manifest::kPendingName))) {
    CheckpointManifestError error("Checkpoint hash manifest is incomplete: its pending marker is still there",
                                  "the save or its hashing did not finish; use another checkpoint, or run "
                                  "`milepost verify` and then `milepost manifest write`");
    error.set_path(location.path);
    throw error;
  }
  ManifestCheck check;
  const std::string path = join_path(location.path, manifest::kManifestName);
  if (!storage.stat(path)) return check;
  check.present = true;
  const manifest::Hashes expected = read_manifest(storage, path);

  Listed listed;
  for (const auto& [name, digest] : expected) listed.emplace(name, &digest);
  std::vector<FileInfo> files;
  for (FileInfo& file : covered_files(storage, location.path)) {
    if (listed.contains(file.name)) {
      files.push_back(std::move(file));
    } else {
      check.extra.push_back(std::move(file.name));
    }
  }
  std::unordered_set<std::string_view> there;
  for (const FileInfo& file : files) there.insert(file.name);
  for (const auto& [name, digest] : expected) {
    if (!there.contains(name)) check.missing.push_back(name);
  }
  check.listing = listing_of(files);
  hash_share(location, files, listed, options, &check);
  return check;
}

}  // namespace milepost
