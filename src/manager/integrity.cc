#include "milepost/manager/integrity.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "milepost/engine/checkpoint.h"
#include "milepost/engine/manifest_files.h"
#include "milepost/format/dcp.h"
#include "milepost/format/safetensors.h"
#include "milepost/manager/fit.h"

namespace milepost::manager {
namespace {

// Findings travel as fields that end in a zero byte, which no name holds: a letter and its text.
enum Field : char {
  kListing = 'l',  // "FILES BYTES DIGEST" of the listed files that are there; absent without a manifest
  kHashed = 'h',   // "FILES BYTES"
  kFault = 'f',
  kHint = 'i',
  kDamage = 'd',
  kUnlisted = 'u',
  kUnsure = 's'
};

void put(Field field, std::string_view text, std::string* out) {
  *out += field;
  *out += text;
  *out += '\0';
}

[[noreturn]] void refuse_findings() {
  throw FormatError(ErrorCode::kBadFormat, "a rank's findings on the manifest cannot be read");
}

struct Count {
  int64_t files = 0, bytes = 0;
};

// "FILES BYTES" and, after a space, a rest.
Count read_count(std::string_view text, std::string_view* rest) {
  Count count;
  const char* const end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, count.files);
  if (first.ec != std::errc() || first.ptr == end) refuse_findings();
  const auto second = std::from_chars(first.ptr + 1, end, count.bytes);
  if (second.ec != std::errc()) refuse_findings();
  *rest = text.substr(static_cast<size_t>(second.ptr - text.data()));
  return count;
}

struct Damage {
  std::string text;
  size_t rank;
};

struct Found {
  Integrity all;
  std::vector<std::string_view> listings;  // of each rank; empty: it saw no manifest
  std::vector<Damage> damages;
};

void take(Field field, std::string_view text, size_t rank, Found* found) {
  Integrity& all = found->all;
  switch (field) {
    case kListing:
      all.has_manifest = true;
      found->listings[rank] = text;
      return;
    case kHashed: {
      std::string_view rest;
      const Count count = read_count(text, &rest);
      if (!rest.empty()) refuse_findings();
      all.files += count.files;
      all.bytes += count.bytes;
      return;
    }
    case kFault:
      all.has_manifest = true;
      if (all.fault.empty()) all.fault = text;
      return;
    case kHint:
      if (all.hint.empty()) all.hint = text;
      return;
    case kDamage:
      found->damages.push_back({std::string(text), rank});
      return;
    case kUnlisted:
      all.unlisted.emplace_back(text);
      return;
    case kUnsure:
      all.unsure.emplace_back(text);
      return;
  }
  refuse_findings();
}

std::string listing_text(std::string_view listing) {
  if (listing.empty()) return "no manifest";
  std::string_view digest;
  const Count count = read_count(listing, &digest);
  return fmt::format("{} listed files of {} bytes (names and sizes{})", count.files, count.bytes,
                     digest.substr(0, 9));
}

// Why the shares of the ranks may not be the whole; empty: they are.
std::string disagreement(const std::string& path, const Found& found) {
  if (!found.all.has_manifest) return {};
  const std::string_view first = found.listings[0];
  for (size_t rank = 1; rank < found.listings.size(); ++rank) {
    if (found.listings[rank] == first) continue;
    return fmt::format("Checkpoint hash manifest verification failed for {}:\n  rank 0 sees {}, rank {} {}",
                       path, listing_text(first), rank, listing_text(found.listings[rank]));
  }
  std::string_view digest;
  const Count listed = read_count(first, &digest);
  if (listed.files == found.all.files && listed.bytes == found.all.bytes) return {};
  return fmt::format("Checkpoint hash manifest verification failed for {}:\n  {} of {} files were hashed",
                     path, found.all.files, listed.files);
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

// Of the files that a manifest does not list, those that the checkpoint consists of. Where its index cannot
// be read, the load will say so.
std::vector<std::string> parts_among(const std::vector<std::string>& unlisted,
                                     const StorageLocation& folder) {
  if (unlisted.empty()) return {};
  std::vector<std::string> parts = {std::string(dcp::kMetadataName), std::string(safetensors::kIndexName)};
  try {
    const std::shared_ptr<const Checkpoint> checkpoint = Checkpoint::open(folder);
    for (const Catalog::File& file : checkpoint->catalog().files()) parts.push_back(file.path);
  } catch (const Error&) {
  }
  std::erase_if(parts, [&](const std::string& part) {
    return std::find(unlisted.begin(), unlisted.end(), part) == unlisted.end();
  });
  return parts;
}

}  // namespace

std::string inspect(const StorageLocation& folder, int64_t rank, int64_t num_ranks) {
  ManifestOptions options;
  options.share = rank;
  options.num_shares = num_ranks;
  std::string findings;
  try {
    const ManifestCheck check = check_manifest(folder, options);
    if (!check.present) return findings;
    put(kListing, fmt::format("{} {} {}", check.listing.files, check.listing.bytes, check.listing.digest),
        &findings);
    put(kHashed, fmt::format("{} {}", check.files, check.bytes), &findings);
    for (const std::string& text : check.mismatched) put(kDamage, printable(text, 400), &findings);
    if (rank != 0) return findings;  // all find the same names
    for (const std::string& name : check.missing) {
      put(kDamage, fmt::format("{}: the file is missing", printable(name)), &findings);
    }
    for (const std::string& name : check.extra) put(kUnlisted, printable(name), &findings);
    for (const std::string& name : parts_among(check.extra, folder)) {
      put(kUnsure, printable(name), &findings);
    }
  } catch (const CheckpointManifestError& error) {
    put(kFault, error.summary(), &findings);
    put(kHint, error.hint(), &findings);
  }
  return findings;
}

Integrity judge(const std::string& path, const std::vector<std::string>& findings) {
  Found found;
  found.listings.resize(findings.size());
  for (size_t rank = 0; rank < findings.size(); ++rank) {
    std::string_view rest = findings[rank];
    while (!rest.empty()) {
      const size_t end = rest.find('\0');
      if (end == rest.npos || end == 0) refuse_findings();
      take(static_cast<Field>(rest[0]), rest.substr(1, end - 1), rank, &found);
      rest.remove_prefix(end + 1);
    }
  }
  Integrity& all = found.all;
  if (!all.fault.empty()) return all;
  all.fault = disagreement(path, found);
  if (!all.fault.empty()) {
    all.ranks_disagree = true;
    all.hint = "let all nodes share the checkpoint, and start again once its files have stopped changing";
  } else if (!found.damages.empty()) {
    all.is_damaged = true;
    all.fault = damage_text(path, found.damages, findings.size() > 1);
    all.hint = "restore these files from a copy, or load another checkpoint";
  }
  return all;
}

std::string brief(const Integrity& integrity) {
  if (integrity.is_damaged) return "its files are not what its hash manifest says";
  if (!integrity.fault.empty()) return "its hash manifest is unfinished or cannot be read";
  return integrity.has_manifest ? "its hash manifest does not list all its files" : "it has no hash manifest";
}

CheckpointManifestError refusal(const std::string& path, const Integrity& integrity) {
  std::string text = integrity.fault, hint = integrity.hint;
  if (text.empty()) {
    text =
        integrity.has_manifest
            ? fmt::format("the checkpoint hash manifest does not list {}, of which the checkpoint consists",
                          names_text(integrity.unsure, 20))
            : "there is no checkpoint hash manifest";
    text += ", and checkpoint.extensions.require_manifest is on";
    hint = "write one with `milepost manifest write`, once the checkpoint is known to be whole";
  }
  CheckpointManifestError error(text, hint);
  error.set_path(path);
  return error;
}

}  // namespace milepost::manager
