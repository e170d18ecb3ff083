// A power cut or a failing call at any point of a conversion leaves the old state or the new one, and debris
// that the next run removes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "milepost/base/error.h"
#include "milepost/engine/convert.h"
#include "milepost/engine/scan.h"
#include "milepost/storage/faulty.h"
#include "milepost/storage/simulated_disk.h"

namespace milepost {
namespace {

// A checkpoint in memory: one tensor of 3 rows, every byte `value`.
std::shared_ptr<const Checkpoint> source(std::byte value) {
  Catalog catalog;
  ByteVector bytes(static_cast<size_t>(3 * 700 * 4), value);
  const auto length = static_cast<int64_t>(bytes.size());
  const uint32_t file = catalog.add_file("w", length);
  catalog.add_tensor("w", DType::kFloat32, Dims{3, 700});
  catalog.add_chunk(Dims{0, 0}, Dims{3, 700}, {0, length, file, Location::kRowMajor});
  return Checkpoint::in_memory(std::move(catalog), {std::make_shared<MemorySource>(std::move(bytes), "w")},
                               {});
}

ConvertOptions options_for(CheckpointFormat format) {
  ConvertOptions options;
  options.to = format;
  options.files = format == CheckpointFormat::kDcp ? 2 : 1;
  options.num_threads = 1;
  options.overwrite = true;
  return options;
}

// Which value the checkpoint at the destination holds; -1 when there is none. Throws when it is damaged.
int value_at(const std::shared_ptr<Storage>& storage, const std::string& path) {
  if (!storage->stat(path)) return -1;
  const auto checkpoint = Checkpoint::open(StorageLocation{storage, path});
  int value = -1;
  scan_tensors(checkpoint, {0}, {}, [&](int64_t, int64_t, Bytes bytes, int) {
    for (std::byte byte : bytes) {
      if (value >= 0 && byte != static_cast<std::byte>(value))
        throw FormatError(ErrorCode::kChecksum, "mixed content");
      value = static_cast<int>(byte);
    }
  });
  return value;
}

size_t num_names(const std::shared_ptr<Storage>& storage) { return storage->list("/d").size(); }

class ConvertCrash : public ::testing::TestWithParam<CheckpointFormat> {
 protected:
  std::string path() const { return GetParam() == CheckpointFormat::kTorchSave ? "/d/out.pth" : "/d/out"; }

  std::shared_ptr<SimulatedDisk> disk_with_old_state(bool old_state) {
    std::shared_ptr<SimulatedDisk> disk = simulated_disk();
    disk->make_directory("/d");
    disk->sync_directory("/");
    if (old_state) convert(source(std::byte{1}), StorageLocation{disk, path()}, options_for(GetParam()));
    return disk;
  }
};

TEST_P(ConvertCrash, APowerCutAtAnyCallLeavesOldOrNew) {
  for (const bool old_state : {false, true}) {
    bool finished = false;
    for (int64_t call = 1; !finished; ++call) {
      ASSERT_LT(call, 500);
      SCOPED_TRACE(call);
      std::shared_ptr<SimulatedDisk> disk = disk_with_old_state(old_state);
      const auto faulty = faulty_storage(disk, {{"any", call, 0}});
      try {
        convert(source(std::byte{2}), StorageLocation{faulty, path()}, options_for(GetParam()));
        finished = true;
      } catch (const PowerCut&) {
      }
      for (uint64_t seed = 0; seed < 12; ++seed) {
        const auto survival = seed == 0   ? SimulatedDisk::Survival::kDropUnsynced
                              : seed == 1 ? SimulatedDisk::Survival::kKeepAll
                                          : SimulatedDisk::Survival::kRandom;
        const std::shared_ptr<SimulatedDisk> after = disk->after_power_cut(survival, seed);
        const int value = value_at(after, path());
        if (finished) {
          EXPECT_EQ(value, 2);
        } else {
          EXPECT_TRUE(value == (old_state ? 1 : -1) || value == 2) << value;
        }
        convert(source(std::byte{3}), StorageLocation{after, path()}, options_for(GetParam()));
        EXPECT_EQ(value_at(after, path()), 3);
        EXPECT_EQ(num_names(after), 1U) << "debris is left";
      }
    }
  }
}

TEST_P(ConvertCrash, AFailureOfAnyCallIsReportedAndLeavesTheOldState) {
  for (const char* op :
       {"open", "write", "truncate", "sync", "close", "mkdir", "rename", "exchange", "syncdir", "lock"}) {
    for (int64_t call = 1; call < 200; ++call) {
      SCOPED_TRACE(std::string(op) + " " + std::to_string(call));
      std::shared_ptr<SimulatedDisk> disk = disk_with_old_state(true);
      const auto faulty = faulty_storage(disk, {{op, call, EIO}});
      try {
        convert(source(std::byte{2}), StorageLocation{faulty, path()}, options_for(GetParam()));
        EXPECT_EQ(value_at(disk, path()), 2);
        break;  // there is no such call: all have been tried
      } catch (const StorageError& error) {
        EXPECT_THAT(error.what(), ::testing::HasSubstr("/d"));
        const int value = value_at(disk, path());
        EXPECT_TRUE(value == 1 || value == 2) << value;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, ConvertCrash,
                         ::testing::Values(CheckpointFormat::kDcp, CheckpointFormat::kSafetensors,
                                           CheckpointFormat::kTorchSave),
                         [](const auto& param) { return std::string(format_name(param.param)); });

}  // namespace
}  // namespace milepost
