#include "milepost/storage/directories.h"

#include <gtest/gtest.h>

#include "milepost/base/error.h"
#include "milepost/storage/simulated_disk.h"
#include "storage/test_files.h"

namespace milepost {
namespace {

TEST(MakeDirectories, SurviveAPowerCutWithWhatIsPublishedInThem) {
  const auto disk = simulated_disk();
  disk->make_directory("/runs");
  disk->sync_directory("/");
  make_directories(*disk, "/runs/one/checkpoint");
  write_file(*disk, "/runs/one/checkpoint/file", "text");
  disk->sync_directory("/runs/one/checkpoint");
  make_directories(*disk, "/runs/one/checkpoint");  // again: nothing changes
  const auto content = read_content(*disk->after_power_cut(SimulatedDisk::Survival::kDropUnsynced, 0), "/");
  EXPECT_EQ(content->at("runs/one/checkpoint/file"), "text");
}

TEST(MakeDirectories, RefuseAFileThatHasTheName) {
  const auto disk = simulated_disk();
  write_file(*disk, "/file", "text");
  EXPECT_THROW(make_directories(*disk, "/file"), StorageError);
  EXPECT_THROW(make_directories(*disk, "/file/below"), StorageError);
  EXPECT_EQ(read_content(*disk, "/")->at("file"), "text");
}

}  // namespace
}  // namespace milepost
