// Saves whose files are hashed as they are written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "milepost/base/error.h"
#include "milepost/engine/load.h"
#include "milepost/engine/manifest_files.h"
#include "milepost/engine/save.h"
#include "milepost/engine/snapshot.h"
#include "milepost/storage/faulty.h"

namespace milepost {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

class SaveManifest : public ::testing::Test {
 protected:
  SaveManifest() { where_.storage->make_directory("/run"); }

  Snapshot snapshot(int64_t rank) const {
    SnapshotBuilder builder;
    for (int i = 0; i < 5; ++i) {
      builder.add_tensor("w" + std::to_string(i), DType::kFloat32, Dims{2, 1000}, Box{{rank, 0}, {1, 1000}});
      builder.add_piece(Box{{rank, 0}, {1, 1000}}, std::as_bytes(std::span(values_)));
    }
    builder.add_object("step", builder.values().integer(7));
    return std::move(builder).finish();
  }
  void save(bool hash_files, int files_per_rank = 0) const {
    const Snapshot first = snapshot(0), second = snapshot(1);
    WriteOptions options;
    options.hash_files = hash_files;
    options.files_per_rank = files_per_rank;
    save_dcp(where_, {first.plan, second.plan}, {first.checkpoint, second.checkpoint}, options, true);
  }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const FileInfo& file : where_.storage->list(where_.path)) names.push_back(file.name);
    return names;
  }

  const StorageLocation where_{memory_storage(), "/run/step-7"};
  const std::vector<float> values_ = std::vector<float>(1000, 1.5F);
};

TEST_F(SaveManifest, HoldsWhatHashingTheFolderAgainGives) {
  save(true);
  const ManifestCheck check = check_manifest(where_, {});
  EXPECT_TRUE(check.good());
  EXPECT_THAT(check.extra, IsEmpty());
  EXPECT_EQ(check.files, 9);  // four a rank, and .metadata
  EXPECT_THAT(names(), SizeIs(10));
}

TEST_F(SaveManifest, IsLeftOutUnlessAskedFor) {
  save(false);
  EXPECT_FALSE(check_manifest(where_, {}).present);
  EXPECT_THAT(names(), SizeIs(3));  // a file a rank
}

TEST_F(SaveManifest, DoesNotChangeTheBytes) {
  save(false, 3);
  const manifest::Hashes without = hash_folder(where_, {});
  save(true, 3);
  EXPECT_EQ(hash_folder(where_, {}), without);
}

// Whatever call fails: no folder without its manifest is published.
TEST_F(SaveManifest, IsThereOrNothingIs) {
  const Snapshot all = snapshot(0);
  LocalPlan plan;
  plan.add_object("step");
  WriteOptions options;
  options.hash_files = true;
  for (int64_t call = 1;; ++call) {
    const std::shared_ptr<Storage> disk = memory_storage();
    disk->make_directory("/run");
    const StorageLocation faulty{faulty_storage(disk, {{"any", call, EIO}}), "/run/step-7"};
    const StorageLocation after{disk, faulty.path};
    bool is_saved = true;
    try {
      save_dcp(faulty, {plan}, {all.checkpoint}, options, false);
    } catch (const StorageError&) {
      is_saved = false;
    }
    if (is_saved || disk->stat(after.path)) {
      EXPECT_TRUE(check_manifest(after, {}).good()) << call;
    }
    if (!is_saved) continue;
    EXPECT_GT(call, 10);
    break;
  }
}

}  // namespace
}  // namespace milepost
