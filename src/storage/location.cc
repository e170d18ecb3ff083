#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "milepost/base/error.h"
#include "milepost/storage/faulty.h"
#include "milepost/storage/storage.h"

namespace milepost {
namespace {

constexpr std::array<std::string_view, 4> kRemoteSchemes = {"s3", "gs", "hdfs", "abfs"};
constexpr std::string_view kFile = "file", kFaultyFile = "faulty+file";

bool is_known_scheme(std::string_view scheme) {
  return scheme == kFile || scheme == kFaultyFile ||
         std::find(kRemoteSchemes.begin(), kRemoteSchemes.end(), scheme) != kRemoteSchemes.end();
}

std::string to_lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

// The scheme in lower case, "" for a plain path. `rest` is what follows its colon.
std::string split_scheme(std::string_view text, std::string_view* rest) {
  const size_t end = text.find_first_of(":/");
  if (end == std::string_view::npos || text[end] == '/') return {};
  std::string scheme = to_lower(text.substr(0, end));
  *rest = text.substr(end + 1);
  if (!is_known_scheme(scheme) && !rest->starts_with("//")) return {};
  return scheme;
}

[[noreturn]] void refuse_scheme(std::string_view scheme, std::string_view uri) {
  const bool is_remote =
      std::find(kRemoteSchemes.begin(), kRemoteSchemes.end(), scheme) != kRemoteSchemes.end();
  ValueError error(
      fmt::format("{} scheme '{}' is not supported", is_remote ? "remote" : "unknown", printable(scheme)),
      is_remote ? "copy it to a local folder with the store's own tool, or mount it, and give that path"
                : "give a path or file:PATH",
      ErrorCode::kUnsupported);
  error.set_path(uri);
  throw error;
}

// The path behind "file:", which may begin with "//" and must then name no host.
std::string_view local_path(std::string_view after_scheme, std::string_view uri) {
  if (!after_scheme.starts_with("//")) return after_scheme;
  after_scheme.remove_prefix(2);
  if (after_scheme.starts_with("localhost/"))
    after_scheme.remove_prefix(std::string_view("localhost").size());
  if (after_scheme.starts_with("/")) return after_scheme;
  ValueError error("a file on another host cannot be reached",
                   "write file:///PATH for a local one, or file:PATH");
  error.set_path(uri);
  throw error;
}

std::string checked_path(std::string_view path, std::string_view uri) {
  if (path.empty()) {
    ValueError error("expected a path, this is empty");
    error.set_path(uri);
    throw error;
  }
  if (path.find('\0') != std::string_view::npos) {
    ValueError error("a path cannot hold a NUL byte");
    error.set_path(uri);
    throw error;
  }
  return std::string(path);
}

std::string_view without_trailing_slashes(std::string_view path) {
  while (path.ends_with('/')) path.remove_suffix(1);
  return path;
}

}  // namespace

StorageLocation resolve_location(std::string_view path_or_uri) {
  std::string_view rest;
  const std::string scheme = split_scheme(path_or_uri, &rest);
  if (scheme.empty()) return {posix_storage(), checked_path(path_or_uri, path_or_uri)};
  if (scheme == kFile) return {posix_storage(), checked_path(local_path(rest, path_or_uri), path_or_uri)};
  if (scheme != kFaultyFile) refuse_scheme(scheme, path_or_uri);
  const size_t question = rest.find('?');
  const std::string_view query = question == std::string_view::npos ? "" : rest.substr(question + 1);
  const std::string_view path = local_path(rest.substr(0, question), path_or_uri);
  return {faulty_storage(posix_storage(), parse_faults(query)), checked_path(path, path_or_uri)};
}

std::string join_path(std::string_view directory, std::string_view name) {
  if (directory.empty()) return std::string(name);
  while (name.starts_with('/')) name.remove_prefix(1);
  return fmt::format("{}/{}", without_trailing_slashes(directory), name);
}

std::string base_name(std::string_view path) {
  path = without_trailing_slashes(path);
  const size_t slash = path.rfind('/');
  return std::string(slash == std::string_view::npos ? path : path.substr(slash + 1));
}

std::string parent_path(std::string_view path) {
  const bool is_absolute = path.starts_with('/');
  path = without_trailing_slashes(path);
  const size_t slash = path.rfind('/');
  const std::string_view parent =
      slash == std::string_view::npos ? "" : without_trailing_slashes(path.substr(0, slash));
  if (!parent.empty()) return std::string(parent);
  return is_absolute ? "/" : ".";
}

bool lies_within(std::string_view path, std::string_view folder) {
  const auto whole = [](std::string_view text) {
    const auto full = std::filesystem::absolute(text).lexically_normal();
    return full.has_filename() ? full : full.parent_path();
  };
  const std::filesystem::path outer = whole(folder), inner = whole(path);
  return std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end()).first == outer.end();
}

}  // namespace milepost
