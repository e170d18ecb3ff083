#include "milepost/engine/verify.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/verify_parts.h"
#include "milepost/format/dcp.h"
#include "milepost/format/manifest.h"
#include "milepost/format/safetensors.h"
#include "milepost/plan/save_plan.h"

namespace milepost {
namespace {

bool holds(const std::vector<FileInfo>& listing, std::string_view suffix) {
  return std::any_of(listing.begin(), listing.end(),
                     [&](const FileInfo& file) { return file.is_regular && file.name.ends_with(suffix); });
}

// Whether a folder holds data of a DCP save that never got its metadata.
bool is_unfinished_dcp(const std::vector<FileInfo>& listing) {
  return holds(listing, ".distcp") || holds(listing, ".metadata.tmp");
}

void report_unfinished(VerifyJob& job) {
  std::string there;
  int64_t count = 0;
  for (const FileInfo& file : job.listing) {
    if (!file.name.ends_with(".distcp") && !file.name.ends_with(".metadata.tmp")) continue;
    if (++count <= 5) there += (there.empty() ? "" : ", ") + printable(file.name, 80);
  }
  if (count > 5) there += fmt::format(" and {} more", count - 5);
  job.report.format = format_name(CheckpointFormat::kDcp);
  job.findings.error(
      ErrorCode::kMissingFile, {dcp::kMetadataName},
      fmt::format("incomplete: .metadata is missing; {} {} there", there, count == 1 ? "is" : "are"),
      "the save did not finish; use an older checkpoint");
}

void verify_folder(VerifyJob& job) {
  job.listing = job.location.storage->list(job.location.path);
  if (job.options.open.rank >= 0 || !metadata_ranks(job.listing).empty()) {
    verify_dcp(job);
  } else if (holds(job.listing, safetensors::kIndexName) || holds(job.listing, ".safetensors")) {
    verify_safetensors_folder(job);
  } else if (is_unfinished_dcp(job.listing)) {
    report_unfinished(job);
  } else {
    Checkpoint::open(job.location, job.options.open);  // throws: it knows best what to say of such a folder
  }
  if (holds(job.listing, manifest::kPendingName)) {
    job.findings.error(
        ErrorCode::kBadManifest, {manifest::kPendingName},
        "the marker of an unfinished save is still there: the manifest was never written",
        "use another checkpoint, or run `milepost manifest write` once this one is known to be whole");
  }
}

void verify_file(VerifyJob& job) {
  job.folder = parent_path(job.location.path);
  const std::string name = base_name(job.location.path);
  if (name.ends_with(".safetensors")) {
    verify_safetensors_file(job, name);
  } else if (name == dcp::kMetadataName || name.ends_with(".distcp") || name.ends_with(".index.json")) {
    Checkpoint::open(job.location, job.options.open);  // throws: one file of a checkpoint is none
  } else {
    verify_torch_file(job, name);
  }
}

// Moves what was found into the report: sorted, counted, cut.
void finish(VerifyJob& job) {
  std::vector<Finding>& list = job.findings.list();
  std::stable_sort(list.begin(), list.end(), [](const Finding& a, const Finding& b) {
    if (a.severity != b.severity) return a.severity > b.severity;
    if (a.path != b.path) return a.path < b.path;
    return a.offset < b.offset;
  });
  for (const Finding& finding : list) {
    job.report.num_errors += finding.severity == Finding::Severity::kError;
    job.report.num_warnings += finding.severity == Finding::Severity::kWarning;
    job.report.num_notes += finding.severity == Finding::Severity::kNote;
  }
  const auto kept = static_cast<size_t>(std::max<int64_t>(job.options.max_findings, 0));
  if (list.size() > kept) list.resize(kept);
  job.report.findings = std::move(list);
}

}  // namespace

std::string_view severity_name(Finding::Severity severity) {
  switch (severity) {
    case Finding::Severity::kNote:
      return "note";
    case Finding::Severity::kWarning:
      return "warning";
    case Finding::Severity::kError:
      return "error";
  }
  return "unknown";
}

std::shared_ptr<const Checkpoint> VerifyJob::open_checkpoint(int64_t rank, Findings& failures) const {
  const auto failed = [&](const Error& error) {
    std::string_view path = error.path();
    const std::string prefix = join_path(folder, "");
    if (path.starts_with(prefix)) path.remove_prefix(prefix.size());
    failures.add(error, {path});
  };
  try {
    OpenOptions open_options = options.open;
    open_options.rank = rank;
    return Checkpoint::open(location, open_options);
  } catch (const FormatError& error) {
    failed(error);
  } catch (const StorageError& error) {
    failed(error);
  }
  return nullptr;
}

void VerifyJob::count_entries(const Catalog& catalog) {
  report.tensors += static_cast<int64_t>(catalog.tensors().size());
  report.objects += static_cast<int64_t>(catalog.objects().size());
  report.chunks += catalog.num_chunks();
}

void VerifyJob::check_coverage(const Catalog& catalog, std::string_view index_name) {
  for (CoverageFault& fault : milepost::check_coverage(catalog, options.max_findings)) {
    const Place place{index_name, catalog.tensors()[static_cast<size_t>(fault.tensor)].name};
    switch (fault.kind) {
      case CoverageFault::Kind::kOutOfBounds:
        findings.error(ErrorCode::kOutOfBounds, place, std::move(fault.text));
        break;
      case CoverageFault::Kind::kOverlap:
        findings.error(ErrorCode::kOverlap, place, std::move(fault.text));
        break;
      case CoverageFault::Kind::kHole:
        findings.error(ErrorCode::kHole, place, std::move(fault.text));
        break;
    }
  }
}

VerifyReport verify(std::string_view path_or_uri, const VerifyOptions& options) {
  return verify(resolve_location(path_or_uri), options);
}

VerifyReport verify(const StorageLocation& location, const VerifyOptions& options) {
  const std::optional<FileInfo> info = location.storage->stat(location.path);
  if (!info) throw StorageError(ErrorCode::kNotFound, "no such file or folder", location.path);
  VerifyReport report;
  Findings findings;
  ThreadPool pool(options.num_threads > 0 ? options.num_threads : default_num_threads());
  VerifyJob job{options, location, location.path, {}, pool, report, findings};
  if (info->is_directory) {
    verify_folder(job);
  } else {
    verify_file(job);
  }
  finish(job);
  return report;
}

}  // namespace milepost
