#include "milepost/manager/integrity.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "milepost/engine/manifest_files.h"

namespace milepost::manager {
namespace {

// Findings travel as fields that end in a zero byte, which no name holds: a letter and its text.
enum Field : char {
  kPresent = 'p',
  kHashed = 'h',
  kFault = 'f',
  kHint = 'i',
  kDamage = 'd',
  kUnlisted = 'u'
};

void put(Field field, std::string_view text, std::string* out) {
  *out += field;
  *out += text;
  *out += '\0';
}

[[noreturn]] void refuse_findings() {
  throw FormatError(ErrorCode::kBadFormat, "a rank's findings on the manifest cannot be read");
}

// "FILES BYTES"
void add_hashed(std::string_view text, Integrity* all) {
  int64_t files = 0, bytes = 0;
  const char* const end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, files);
  if (first.ec != std::errc() || first.ptr == end) refuse_findings();
  const auto second = std::from_chars(first.ptr + 1, end, bytes);
  if (second.ec != std::errc() || second.ptr != end) refuse_findings();
  all->files += files;
  all->bytes += bytes;
}

struct Damage {
  std::string text;
  size_t rank;
};

void take(Field field, std::string_view text, size_t rank, Integrity* all, std::vector<Damage>* damages) {
  switch (field) {
    case kPresent:
      all->has_manifest = true;
      return;
    case kHashed:
      return add_hashed(text, all);
    case kFault:
      if (all->fault.empty()) all->fault = text;
      return;
    case kHint:
      if (all->hint.empty()) all->hint = text;
      return;
    case kDamage:
      damages->push_back({std::string(text), rank});
      return;
    case kUnlisted:
      if (rank == 0) all->unlisted.emplace_back(text);
      return;
  }
  refuse_findings();
}

std::string damage_text(const std::string& path, const std::vector<Damage>& damages, bool has_ranks) {
  std::string text = fmt::format("Checkpoint hash manifest verification failed for {}:", path);
  constexpr size_t kMostLines = 50;
  for (size_t i = 0; i < std::min(damages.size(), kMostLines); ++i) {
    text += fmt::format("\n  {}", damages[i].text);
    if (has_ranks) text += fmt::format(", found by rank {}", damages[i].rank);
  }
  if (damages.size() > kMostLines) text += fmt::format("\n  and {} more", damages.size() - kMostLines);
  return text;
}

}  // namespace

std::string inspect(const StorageLocation& folder, int64_t rank, int64_t num_ranks) {
  ManifestOptions options;
  options.share = rank;
  options.num_shares = num_ranks;
  std::string findings;
  try {
    const ManifestCheck check = check_manifest(folder, options);
    if (check.present) put(kPresent, "", &findings);
    put(kHashed, fmt::format("{} {}", check.files, check.bytes), &findings);
    for (const std::string& text : check.mismatched) put(kDamage, text, &findings);
    if (rank != 0) return findings;  // all find the same names
    for (const std::string& name : check.missing) {
      put(kDamage, fmt::format("{}: the file is missing", printable(name)), &findings);
    }
    for (const std::string& name : check.extra) put(kUnlisted, printable(name), &findings);
  } catch (const CheckpointManifestError& error) {
    put(kPresent, "", &findings);
    put(kFault, error.summary(), &findings);
    put(kHint, error.hint(), &findings);
  }
  return findings;
}

Integrity judge(const std::string& path, const std::vector<std::string>& findings) {
  Integrity all;
  std::vector<Damage> damages;
  for (size_t rank = 0; rank < findings.size(); ++rank) {
    std::string_view rest = findings[rank];
    while (!rest.empty()) {
      const size_t end = rest.find('\0');
      if (end == rest.npos || end == 0) refuse_findings();
      take(static_cast<Field>(rest[0]), rest.substr(1, end - 1), rank, &all, &damages);
      rest.remove_prefix(end + 1);
    }
  }
  if (!all.fault.empty() || damages.empty()) return all;
  all.fault = damage_text(path, damages, findings.size() > 1);
  all.hint = "restore these files from a copy, or load another checkpoint";
  return all;
}

CheckpointManifestError refusal(const std::string& path, const Integrity& integrity) {
  const bool is_absent = integrity.fault.empty();
  CheckpointManifestError error(
      is_absent ? "there is no checkpoint hash manifest, and checkpoint.extensions.require_manifest is on"
                : integrity.fault,
      is_absent ? "write one with `milepost manifest write`, once the checkpoint is known to be whole"
                : integrity.hint);
  error.set_path(path);
  return error;
}

}  // namespace milepost::manager
