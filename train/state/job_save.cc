#include "train/state/job_save.h"

#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "milepost/engine/convert.h"
#include "milepost/engine/manifest_files.h"
#include "milepost/engine/model.h"
#include "milepost/engine/save.h"
#include "milepost/engine/save_bytes.h"
#include "milepost/manager/entries.h"
#include "milepost/manager/pins.h"
#include "milepost/storage/staging.h"
#include "train/state/stopwatch.h"

namespace milepost::train {
namespace {

// Where torch's own loading into nested dictionaries finds the entries, and torch's order of them.
void describe_as_torch(const std::vector<LocalPlan>& plans, GlobalPlan* plan) {
  const std::vector<std::string> names = order_of_proposals(plans);
  for (const std::string& name : names) plan->catalog.set_path(name, manager::entry_path(name));
  plan->catalog.set_order(names);
}

// A folder that one rank has staged and all write into, unless what it shall replace is pinned, now or by the
// time when it is whole.
class StagedFolder {
 public:
  StagedFolder(const StorageLocation& destination, const Together& ranks, bool hash_files)
      : destination_(destination), ranks_(ranks) {
    path_ = unless_pinned([&] {
      staged_.emplace(destination.storage, destination.path, StagedOutput::Kind::kDirectory, true);
      if (hash_files) mark_pending(*destination.storage, staged_->path());
      return staged_->path();
    });
  }
  bool is_refused() const { return path_.empty(); }
  const std::string& path() const { return path_; }
  // `last` is the first rank's last work before the folder appears. Returns whether it has.
  bool publish(const std::function<void()>& last) {
    return !unless_pinned([&] {
              last();
              staged_->commit();
              return path_;
            }).empty();
  }

 private:
  // What `work` of the first rank returns, everywhere; empty where a pin is in its way.
  std::string unless_pinned(const std::function<std::string()>& work) const {
    return ranks_.first([&] {
      try {
        return work();
      } catch (const ValueError& error) {
        if (error.code() != ErrorCode::kExists || !manager::is_pinned(destination_)) throw;
        return std::string();
      }
    });
  }

  const StorageLocation& destination_;
  const Together& ranks_;
  std::optional<StagedOutput> staged_;
  std::string path_;
};

GlobalPlan plan_of(const std::vector<std::string>& proposals) {
  std::vector<LocalPlan> plans;
  for (const std::string& bytes : proposals) plans.push_back(decode_local_plan(bytes));
  GlobalPlan plan = plan_global(plans);
  describe_as_torch(plans, &plan);
  return plan;
}

// The parts of all ranks, written.
struct Shards {
  GlobalPlan plan;
  std::vector<std::string> encoded_results;

  // What the first rank needs for the metadata.
  std::vector<RankResult> results() const {
    std::vector<RankResult> results;
    for (const std::string& bytes : encoded_results) results.push_back(decode_rank_result(bytes));
    return results;
  }
};

int64_t bytes_of(const std::vector<RankResult>& results) {
  int64_t bytes = 0;
  for (const RankResult& result : results) {
    bytes = std::accumulate(result.file_sizes.begin(), result.file_sizes.end(), bytes);
  }
  return bytes;
}

// The plan is made on every rank from the same proposals, so that only these and what was written travel.
// All that may fail does so where the others hear of it.
Shards write_shards(Storage& storage, const std::string& folder, const Snapshot& snapshot, int64_t rank,
                    const Together& ranks, bool hash_files) {
  const std::vector<std::string> proposals = ranks.gather([&] { return encode_local_plan(snapshot.plan); });
  Shards shards;
  shards.encoded_results = ranks.gather([&] {
    shards.plan = plan_of(proposals);
    return encode_rank_result(
        write_rank(storage, folder, shards.plan, rank, snapshot.checkpoint, {.hash_files = hash_files}));
  });
  return shards;
}

// Of the files of all ranks.
manifest::Hashes all_hashes(const std::vector<std::string>& manifests) {
  manifest::Hashes all;
  for (const std::string& text : manifests) {
    const manifest::Hashes own = manifest::read(MemorySource(as_bytes(text), "a rank's manifest"));
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

// A checkpoint that every rank can read all of: a rank's own snapshot holds the rank's parts alone.
std::shared_ptr<const Checkpoint> whole_checkpoint(const StorageLocation& folder, const Snapshot& snapshot,
                                                   int64_t rank, const Together& ranks) {
  if (ranks.size() == 1) return snapshot.checkpoint;
  Storage& storage = *folder.storage;
  ranks.all([&] {
    if (ranks.is_first()) storage.make_directory(folder.path);
  });
  Shards shards = write_shards(storage, folder.path, snapshot, rank, ranks, false);
  ranks.all([&] {
    if (!ranks.is_first()) return;
    write_metadata_file(storage, folder.path, shards.plan, shards.results(), base_name(folder.path), true);
  });
  std::shared_ptr<const Checkpoint> whole;
  ranks.all([&] { whole = Checkpoint::open(folder); });
  return whole;
}

}  // namespace

std::optional<SavedFiles> write_dcp(const StorageLocation& destination, const Snapshot& snapshot,
                                    int64_t rank, const Together& ranks, bool hash_files,
                                    const Written& written) {
  StagedFolder staged(destination, ranks, hash_files);
  if (staged.is_refused()) return std::nullopt;
  const Stopwatch stopwatch;
  Shards shards = write_shards(*destination.storage, staged.path(), snapshot, rank, ranks, hash_files);
  SavedFiles saved;
  const bool is_published = staged.publish([&] {
    const std::vector<RankResult> results = shards.results();
    saved.bytes = bytes_of(results);
    if (written) written(saved.bytes, stopwatch.seconds());
    saved.num_hashes = write_metadata_file(*destination.storage, staged.path(), shards.plan, results,
                                           base_name(destination.path), true);
  });
  if (!is_published) return std::nullopt;
  return saved;
}

std::optional<SavedFiles> write_hugging_face(const StorageLocation& destination, const Snapshot& snapshot,
                                             const flavor::Model& model, DType dtype, int64_t rank,
                                             const Together& ranks, bool hash_files) {
  StagedFolder staged(destination, ranks, hash_files);
  if (staged.is_refused()) return std::nullopt;
  Storage& storage = *destination.storage;
  const StorageLocation parts{destination.storage, join_path(staged.path(), "sharded")};
  std::shared_ptr<const Checkpoint> whole = whole_checkpoint(parts, snapshot, rank, ranks);
  SavedFiles saved;
  const std::vector<std::string> manifests = ranks.gather([&] {
    ModelChoice choice;
    choice.exact = model;
    // Its files are closed when this ends: they are removed next.
    const NamedModel exported = as_hugging_face(std::exchange(whole, nullptr), choice, std::nullopt, false);
    ConvertOptions options;
    options.to = CheckpointFormat::kSafetensors;
    options.dtype = dtype;
    options.always_index = true;
    add_hugging_face_files(exported, dtype, false, std::nullopt, &options);
    const ConvertReport report = convert_part(exported.checkpoint, {destination.storage, staged.path()},
                                              options, {rank, ranks.size(), hash_files});
    saved.bytes = report.bytes_out;
    return manifest::write(report.hashes);
  });
  const bool is_published = staged.publish([&] {
    storage.remove_tree(parts.path);
    if (!hash_files) return;
    const manifest::Hashes hashes = all_hashes(manifests);
    publish_manifest(storage, staged.path(), hashes);
    saved.num_hashes = static_cast<int64_t>(hashes.size());
  });
  if (!is_published) return std::nullopt;
  return saved;
}

}  // namespace milepost::train
