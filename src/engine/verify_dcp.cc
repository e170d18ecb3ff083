// How a DCP folder is verified:
//
// 1. `.metadata` is read, or, where each rank wrote its own, every `__R.metadata`. Without one nothing more
// can be said.
// 2. Chunks must cover their tensors exactly (plan/save_plan.h).
// 3. Every chunk and object *claims* a range of a data file. Claims are sorted by file and offset: each must
// lie inside its
//    file, no two may share bytes, and bytes that nobody claims are reported.
// 4. Each claimed range is an archive, which is opened and compared with what the index says; every record's
// CRC is checked.
//    Neighbouring items are checked together, groups in parallel.
// 5. Files that nothing refers to are left over from another save.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <unordered_map>

#include "engine/report_progress.h"
#include "engine/verify_dcp_item.h"
#include "engine/verify_parts.h"
#include "milepost/base/aligned_buffer.h"
#include "milepost/base/checked_math.h"
#include "milepost/format/dcp.h"

namespace milepost {
namespace {

constexpr int64_t kGroupBytes = int64_t{8} << 20;
constexpr size_t kGroupItems = 1024;
constexpr size_t kMaxNamed = 5;        // entries listed for a missing file
constexpr int64_t kUsualPadding = 64;  // writers may align items

// "__R.metadata" or "__R_n.distcp": R, or -1.
int64_t rank_in_name(std::string_view name) {
  int64_t rank = -1;
  if (!name.starts_with("__")) return -1;
  const auto [end, code] = std::from_chars(name.data() + 2, name.data() + name.size(), rank);
  return code == std::errc() && rank >= 0 && (*end == '.' || *end == '_') ? rank : -1;
}

struct Claim {
  uint32_t file;    // of DcpCheck::files_
  int32_t catalog;  // of DcpCheck::checkpoints_
  int64_t entry;    // chunk, or -1 - object
  int64_t offset, length;
};

struct DataFile {
  std::string path;
  int64_t size = -1;  // -1: absent
  bool readable = false;
};

class DcpCheck {
 public:
  explicit DcpCheck(VerifyJob& job) : job_(job) {}

  void run() {
    job_.report.format = format_name(CheckpointFormat::kDcp);
    std::vector<int64_t> ranks = metadata_ranks(job_.listing);
    if (job_.options.open.rank >= 0) ranks = {job_.options.open.rank};
    bool all_read = true;
    for (const int64_t rank : ranks) all_read = open(rank) && all_read;
    sort_claims();
    report_missing_files();
    check_ranges();
    check_items();
    if (all_read && job_.options.open.rank < 0) report_stale_files(ranks);
  }

 private:
  // Steps 1 and 2.
  bool open(int64_t rank) {
    const std::string name = rank < 0 ? std::string(dcp::kMetadataName) : fmt::format("__{}.metadata", rank);
    ++job_.report.files;
    std::shared_ptr<const Checkpoint> checkpoint = job_.open_checkpoint(rank, job_.findings);
    if (!checkpoint) return false;
    for (const std::string& warning : checkpoint->warnings()) {
      job_.findings.warning(ErrorCode::kBadFormat, {name}, warning);
    }
    const Catalog& catalog = checkpoint->catalog();
    job_.count_entries(catalog);
    job_.check_coverage(catalog, name);
    const auto index = static_cast<int32_t>(checkpoints_.size());
    std::vector<uint32_t> files;
    for (const Catalog::File& file : catalog.files()) files.push_back(add_file(file.path));
    const auto claim = [&](int64_t entry, const Location& location, const std::string& key) {
      if (location.file == Location::kNoFile) {
        job_.findings.error(ErrorCode::kMissingKey, {name, key}, "no data is recorded for this entry");
      } else {
        claims_.push_back({files[location.file], index, entry, location.offset, location.length});
      }
    };
    for (const Catalog::Tensor& tensor : catalog.tensors()) {
      for (int64_t chunk = tensor.first_chunk; chunk < tensor.first_chunk + tensor.num_chunks; ++chunk) {
        claim(chunk, catalog.chunk_location(chunk), tensor.name);
      }
    }
    for (size_t i = 0; i < catalog.objects().size(); ++i) {
      claim(-1 - static_cast<int64_t>(i), catalog.objects()[i].location, catalog.objects()[i].name);
    }
    checkpoints_.push_back(std::move(checkpoint));
    return true;
  }

  uint32_t add_file(const std::string& path) {
    const auto [it, added] = file_index_.try_emplace(path, static_cast<uint32_t>(files_.size()));
    if (added) {
      const std::optional<FileInfo> info = job_.location.storage->stat(join_path(job_.folder, path));
      files_.push_back({path, info ? info->size_bytes : -1, info && info->is_regular});
      ++job_.report.files;
    }
    return it->second;
  }

  void sort_claims() {
    std::sort(claims_.begin(), claims_.end(), [](const Claim& a, const Claim& b) {
      if (a.file != b.file) return a.file < b.file;
      if (a.offset != b.offset) return a.offset < b.offset;
      return a.length != b.length ? a.length < b.length : a.entry < b.entry;
    });
    for (size_t i = 0; i < claims_.size(); ++i) {
      if (i == 0 || claims_[i].file != claims_[i - 1].file) first_claim_[claims_[i].file] = i;
    }
  }

  ItemEntry entry(const Claim& claim) const {
    return {checkpoints_[static_cast<size_t>(claim.catalog)]->catalog(), claim.entry};
  }

  // [begin, end) of the file's claims.
  std::pair<size_t, size_t> claims_of(uint32_t file) const {
    const auto it = first_claim_.find(file);
    if (it == first_claim_.end()) return {0, 0};
    size_t end = it->second;
    while (end < claims_.size() && claims_[end].file == file) ++end;
    return {it->second, end};
  }

  void report_missing_files() {
    for (uint32_t index = 0; index < files_.size(); ++index) {
      const DataFile& file = files_[index];
      if (file.readable) continue;
      if (file.size >= 0) {
        job_.findings.error(ErrorCode::kIo, {file.path}, "this is not a regular file and is not opened");
        continue;
      }
      const auto [begin, end] = claims_of(index);
      std::string needed;
      for (size_t i = begin; i < end && i < begin + kMaxNamed; ++i) {
        needed += (i == begin ? "" : ", ") + entry(claims_[i]).text();
      }
      if (end - begin > kMaxNamed) needed += fmt::format(" and {} more entries", end - begin - kMaxNamed);
      const int64_t rank = rank_in_name(file.path);
      job_.findings.error(ErrorCode::kMissingFile, {file.path},
                          fmt::format("data file{} is missing; needed for {}",
                                      rank < 0 ? "" : fmt::format(" (written by rank {})", rank), needed),
                          "restore the file from a copy of the checkpoint");
    }
  }

  // Step 3. Drops the claims that cannot be read.
  void check_ranges() {
    size_t kept = 0;
    for (size_t i = 0; i < claims_.size();) {
      const DataFile& file = files_[claims_[i].file];
      const uint32_t index = claims_[i].file;
      int64_t end = 0;  // of all claims so far
      const Claim* furthest = nullptr;
      for (; i < claims_.size() && claims_[i].file == index; ++i) {
        const Claim claim = claims_[i];
        if (!file.readable) continue;
        if (!range_fits(claim.offset, claim.length, file.size)) {
          job_.findings.error(
              ErrorCode::kOutOfBounds, {file.path, entry(claim).name(), claim.offset},
              fmt::format("its {} bytes leave the file, which has {}", claim.length, file.size),
              "the file was cut short or belongs to another save: restore it from a copy");
          continue;
        }
        claims_[kept] = claim;
        if (claim.offset > end) report_gap(file, end, claim.offset);
        if (claim.offset < end && claim.length > 0) report_overlap(file, claim, *furthest, end);
        if (claim.offset + claim.length > end || furthest == nullptr) {
          end = claim.offset + claim.length;
          furthest = &claims_[kept];
        }
        ++kept;
      }
      if (file.readable && file.size > end) report_gap(file, end, file.size);
    }
    claims_.resize(kept);
  }

  void report_overlap(const DataFile& file, const Claim& claim, const Claim& other, int64_t end) {
    job_.findings.error(
        ErrorCode::kOverlap, {file.path, entry(claim).name(), claim.offset},
        fmt::format("bytes {} to {} are also those of '{}'", claim.offset,
                    std::min(end, claim.offset + claim.length), printable(entry(other).name())),
        "the index is damaged, or two saves were mixed");
  }

  void report_gap(const DataFile& file, int64_t begin, int64_t end) {
    std::string text = fmt::format("nothing refers to the {} bytes from here on", end - begin);
    if (end - begin <= kUsualPadding) {
      job_.findings.note(ErrorCode::kHole, {file.path, {}, begin}, std::move(text));
    } else {
      job_.findings.warning(ErrorCode::kHole, {file.path, {}, begin}, std::move(text),
                            "an older save may have left them, or the index lost entries");
    }
  }

  // Step 4.
  void check_items() {
    struct Group {
      size_t begin, end;  // of claims_
      Findings findings = {};
      CrcTally tally = {};
      int64_t bytes = 0;
    };
    std::vector<Group> groups;
    for (size_t i = 0; i < claims_.size(); ++i) {
      const bool joins = !groups.empty() && claims_[i].file == claims_[groups.back().begin].file &&
                         i - groups.back().begin < kGroupItems && groups.back().bytes < kGroupBytes;
      if (!joins) groups.push_back({i, i});
      groups.back().end = i + 1;
      groups.back().bytes += claims_[i].length;
      expect_bytes(job_.options.progress, claims_[i].length);
    }
    std::vector<AlignedBuffer> blocks(static_cast<size_t>(job_.pool.num_threads()));
    job_.pool.run(static_cast<int64_t>(groups.size()), [&](int64_t index, int worker) {
      Group& group = groups[static_cast<size_t>(index)];
      AlignedBuffer& block = blocks[static_cast<size_t>(worker)];
      if (block.size() == 0) block = AlignedBuffer(kVerifyBlockBytes);
      check_group(group.begin, group.end, block.span(), group.findings, &group.tally);
    });
    std::map<uint32_t, CrcTally> tallies;
    for (Group& group : groups) {
      CrcTally& tally = tallies[claims_[group.begin].file];
      tally.records += group.tally.records;
      tally.without_crc += group.tally.without_crc;
      job_.report.bytes_checked += job_.options.payloads ? group.bytes : 0;
      job_.findings.append(std::move(group.findings));
    }
    for (const auto& [file, tally] : tallies) note_missing_crcs(tally, files_[file].path, job_.findings);
  }

  void check_group(size_t begin, size_t end, MutableBytes block, Findings& findings, CrcTally* tally) {
    const std::string& path = files_[claims_[begin].file].path;
    std::shared_ptr<const ByteSource> file;
    try {
      file = job_.open(path);
    } catch (const Error& error) {
      findings.add(error, {path});
      return;
    }
    for (size_t i = begin; i < end; ++i) {
      check_item(file, claims_[i].offset, claims_[i].length, entry(claims_[i]), path, job_.options.payloads,
                 block, findings, tally);
      advance(job_.options.progress, claims_[i].length);
    }
  }

  // Step 5. A data file without bytes is what torch writes for a rank that has nothing to write.
  void report_stale_files(const std::vector<int64_t>& ranks) {
    for (const FileInfo& file : job_.listing) {
      if (!file.is_regular) continue;
      if (file.name.ends_with(".distcp") && file.size_bytes > 0 && !file_index_.contains(file.name)) {
        job_.findings.warning(ErrorCode::kExists, {file.name},
                              "stale: nothing in this checkpoint refers to this file",
                              "a save with more ranks or files left it behind; it can be removed");
      }
      if (file.name.ends_with(".metadata.tmp")) {
        job_.findings.warning(
            ErrorCode::kExists, {file.name}, "stale: an unfinished save left this file behind",
            "a later save into the same folder may have replaced data files: check the dates");
      }
      if (ranks == std::vector<int64_t>{-1} && file.name.ends_with(".metadata") &&
          rank_in_name(file.name) >= 0) {
        job_.findings.warning(ErrorCode::kExists, {file.name},
                              "stale: .metadata decides, this file is not read",
                              "an older save, in which each rank wrote its own metadata, left it behind");
      }
    }
  }

  VerifyJob& job_;
  std::vector<std::shared_ptr<const Checkpoint>> checkpoints_;
  std::vector<DataFile> files_;
  std::unordered_map<std::string, uint32_t> file_index_;
  std::vector<Claim> claims_;
  std::unordered_map<uint32_t, size_t> first_claim_;
};

}  // namespace

std::vector<int64_t> metadata_ranks(const std::vector<FileInfo>& listing) {
  std::vector<int64_t> ranks;
  for (const FileInfo& file : listing) {
    if (!file.is_regular || !file.name.ends_with(dcp::kMetadataName)) continue;
    if (file.name == dcp::kMetadataName) return {-1};
    if (const int64_t rank = rank_in_name(file.name); rank >= 0) ranks.push_back(rank);
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

void verify_dcp(VerifyJob& job) { DcpCheck(job).run(); }

}  // namespace milepost
