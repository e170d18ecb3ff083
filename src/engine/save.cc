#include "milepost/engine/save.h"

#include <algorithm>
#include <iterator>
#include <span>

#include "engine/buffered_file.h"
#include "engine/dcp_files.h"
#include "milepost/base/error.h"
#include "milepost/engine/manifest_files.h"
#include "milepost/format/dcp.h"
#include "milepost/storage/staging.h"

namespace milepost {
namespace {

std::vector<std::string> paths_in(const std::string& folder, const std::vector<std::string>& names) {
  std::vector<std::string> paths;
  for (const std::string& name : names) paths.push_back(join_path(folder, name));
  return paths;
}

manifest::Hashes hashes_of(const std::vector<RankResult>& results) {
  manifest::Hashes hashes;
  for (const RankResult& result : results) {
    for (size_t i = 0; i < result.digests.size(); ++i) {
      hashes.emplace_back(result.files[i], to_hex(result.digests[i]));
    }
  }
  return hashes;
}

// Digests of the files of all ranks, in order, to each its own.
void hand_out(std::span<const Sha256Digest> digests, std::vector<RankResult>* results) {
  for (RankResult& result : *results) {
    if (digests.empty()) return;
    const auto own = digests.first(result.files.size());
    result.digests.assign(own.begin(), own.end());
    digests = digests.subspan(own.size());
  }
}

}  // namespace

RankResult write_rank(Storage& storage, const std::string& folder, const GlobalPlan& plan, int64_t rank,
                      const std::shared_ptr<const Checkpoint>& source, const WriteOptions& options) {
  PayloadSource payloads;
  payloads.checkpoint = source;
  const std::vector<PayloadRef> objects = prepare_payloads(plan, {rank}, &payloads);
  RankFiles files = plan_rank_files(plan, rank, options, payloads, objects);
  files.result.digests = write_images(storage, paths_in(folder, files.result.files), files.files, options);
  return std::move(files.result);
}

int64_t write_metadata_file(Storage& storage, const std::string& folder, GlobalPlan& plan,
                            const std::vector<RankResult>& results, const std::string& checkpoint_id,
                            bool sync) {
  set_locations(plan, results);
  manifest::Hashes hashes = hashes_of(results);
  Sha256 hash;
  BufferedFile file(storage, join_path(folder, dcp::kMetadataName), hashes.empty() ? nullptr : &hash);
  dcp::write_metadata(plan.catalog, {checkpoint_id, {}}, file);
  file.finish(sync);
  if (hashes.empty()) return 0;
  hashes.emplace_back(dcp::kMetadataName, to_hex(hash.finish()));
  publish_manifest(storage, folder, hashes);
  return static_cast<int64_t>(hashes.size());
}

void save_dcp(const StorageLocation& location, const std::vector<LocalPlan>& plans,
              const std::vector<std::shared_ptr<const Checkpoint>>& sources, const WriteOptions& options,
              bool overwrite) {
  if (sources.size() != 1 && sources.size() != plans.size()) {
    throw ValueError("there must be one source, or one for each rank");
  }
  GlobalPlan plan = plan_global(plans);
  StagedOutput staged(location.storage, location.path, StagedOutput::Kind::kDirectory, overwrite);
  if (options.hash_files) mark_pending(*location.storage, staged.path());
  // All ranks' files are written by one pool, so that several are under way at once.
  std::vector<std::unique_ptr<PayloadSource>> payloads;
  std::vector<OutputFile> files;
  std::vector<std::string> names;
  std::vector<RankResult> results;
  for (size_t r = 0; r < plans.size(); ++r) {
    const auto rank = static_cast<int64_t>(r);
    payloads.push_back(std::make_unique<PayloadSource>());
    payloads.back()->checkpoint = sources[sources.size() == 1 ? 0 : r];
    const std::vector<PayloadRef> objects = prepare_payloads(plan, {rank}, payloads.back().get());
    RankFiles share = plan_rank_files(plan, rank, options, *payloads.back(), objects);
    std::move(share.files.begin(), share.files.end(), std::back_inserter(files));
    names.insert(names.end(), share.result.files.begin(), share.result.files.end());
    results.push_back(std::move(share.result));
  }
  hand_out(write_images(*location.storage, paths_in(staged.path(), names), files, options), &results);
  write_metadata_file(*location.storage, staged.path(), plan, results, base_name(location.path),
                      options.sync);
  staged.commit();
}

}  // namespace milepost
