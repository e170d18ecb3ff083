// Rehearses the death of a save: cut at every mutating call, what survives of the disk in every mode; and
// failure of every call. What is at the final name is the old output or the new one, and the next save, or a
// look at the folder, makes everything right. The same of a removal.
#include <gtest/gtest.h>

#include "milepost/storage/faulty.h"
#include "milepost/storage/simulated_disk.h"
#include "milepost/storage/staging.h"
#include "storage/test_files.h"

namespace milepost {
namespace {

using Content = std::map<std::string, std::string>;
using Kind = StagedOutput::Kind;
using Survival = SimulatedDisk::Survival;

constexpr uint64_t kSeeds = 12;
constexpr std::string_view kFinal = "/parent/out";

struct Scenario {
  std::string name;
  Kind kind = Kind::kDirectory;
  bool exists = false;
  bool has_exchange = true;
  bool has_journal = false;
};

const Content& old_content(const Scenario& scenario) {
  static const Content file{{"", "PK\3\4" + test_bytes(5000, 1)}};
  static const Content folder{
      {".metadata", "old"}, {"__0_0.distcp", test_bytes(5000, 1)}, {"gone.distcp", "gone"}};
  return scenario.kind == Kind::kFile ? file : folder;
}

const Content& new_content(const Scenario& scenario) {
  static const Content file{{"", "PK\3\4" + test_bytes(9000, 2)}};
  static const Content folder{{".metadata", "new"},
                              {"__0_0.distcp", test_bytes(9000, 2)},
                              {"sharded/", ""},
                              {"sharded/a.safetensors", "shard"}};
  return scenario.kind == Kind::kFile ? file : folder;
}

void write_content(Storage& storage, const std::string& path, const Content& content) {
  for (const auto& [name, text] : content) {
    const std::string file = name.empty() ? path : join_path(path, name);
    name.ends_with('/') ? storage.make_directory(file) : write_file(storage, file, text);
  }
}

void save(const std::shared_ptr<Storage>& storage, const Scenario& scenario) {
  StagedOutput output(storage, std::string(kFinal), scenario.kind, true);
  if (scenario.has_journal) write_file(*storage, output.journal_path(), "journal");
  write_content(*storage, output.path(), new_content(scenario));
  output.commit();
}

std::vector<Fault> faults_of(const Scenario& scenario, std::vector<Fault> faults) {
  for (int64_t call = 1; !scenario.has_exchange && call < 10; ++call)
    faults.push_back({"exchange", call, ENOSYS});
  return faults;
}

// The disk before the save, all of it durable.
std::shared_ptr<SimulatedDisk> prepared_disk(const Scenario& scenario) {
  const auto disk = simulated_disk();
  disk->make_directory("/parent");
  if (scenario.exists) {
    const std::string path(kFinal);
    if (scenario.kind == Kind::kDirectory) disk->make_directory(path);
    write_content(*disk, path, old_content(scenario));
    if (scenario.kind == Kind::kDirectory) disk->sync_directory(path);
  }
  disk->sync_directory("/parent");
  disk->sync_directory("/");
  return disk;
}

class StagingCrash : public testing::TestWithParam<Scenario> {
 protected:
  FolderContent old_state() const {
    return GetParam().exists ? FolderContent(old_content(GetParam())) : std::nullopt;
  }
  FolderContent new_state() const { return new_content(GetParam()); }
  static FolderContent state_of(Storage& storage) { return read_content(storage, std::string(kFinal)); }

  // Between the two renames that stand in for an exchange nothing is at the final name.
  bool may_be_absent() const {
    return GetParam().exists && !GetParam().has_exchange && GetParam().kind == Kind::kDirectory;
  }

  int64_t num_calls(const std::string& op) const {
    const auto storage = faulty_storage(prepared_disk(GetParam()), faults_of(GetParam(), {}));
    save(storage, GetParam());
    return storage->calls(op);
  }

  bool is_whole(const FolderContent& state) const { return state == old_state() || state == new_state(); }

  // What the cut left is whole, and the next StagedOutput cleans up.
  void check_whole(const std::shared_ptr<Storage>& storage) const {
    const FolderContent found = state_of(*storage);
    ASSERT_TRUE(is_whole(found) || (!found && may_be_absent()));
    if (GetParam().has_journal) {
      const StagedOutput next(storage, std::string(kFinal), GetParam().kind, true,
                              StagedOutput::Leftovers::kKeep);
      ASSERT_FALSE(storage->stat(next.journal_path()) && read_content(*storage, next.path()) == old_state())
          << "the old output would be taken for what has been written";
    }
    { StagedOutput next(storage, std::string(kFinal), GetParam().kind, true); }
    const FolderContent settled = state_of(*storage);
    ASSERT_TRUE(found ? settled == found : is_whole(settled));
    for (const FileInfo& info : storage->list("/parent")) ASSERT_EQ(info.name, "out") << "debris";
  }

  // Who knows the folder alone puts it right as well.
  void check_settled(const std::shared_ptr<Storage>& storage) const {
    const FolderContent found = state_of(*storage);
    settle_stale_staging(storage, "/parent");
    const FolderContent settled = state_of(*storage);
    ASSERT_TRUE(found ? settled == found : is_whole(settled));
    for (const FileInfo& info : storage->list("/parent")) ASSERT_EQ(info.name, "out") << "debris";
  }

  // Besides, a save then works.
  void check_recovery(const std::shared_ptr<SimulatedDisk>& storage) const {
    check_settled(storage->after_power_cut(Survival::kKeepAll, 0));
    if (HasFatalFailure()) return;
    check_whole(storage);
    if (HasFatalFailure()) return;
    save(storage, GetParam());
    ASSERT_TRUE(state_of(*storage) == new_state());
  }

  // A save that dies at mutating call `call`.
  static void save_until(const std::shared_ptr<Storage>& storage, int64_t call) {
    save(faulty_storage(storage, faults_of(GetParam(), {{"any", call, 0}})), GetParam());
  }

  // Calls `check` with what is left in each mode, for random survival with `num_seeds` seeds from
  // `first_seed` on.
  template <typename Check>
  static void for_each_survivor(const SimulatedDisk& disk, uint64_t first_seed, uint64_t num_seeds,
                                Check check) {
    check(disk.after_power_cut(Survival::kDropUnsynced, 0), "drop unsynced");
    check(disk.after_power_cut(Survival::kKeepAll, 0), "keep all");
    for (uint64_t seed = first_seed; seed < first_seed + num_seeds; ++seed) {
      check(disk.after_power_cut(Survival::kRandom, seed), "seed " + std::to_string(seed));
    }
  }
};

INSTANTIATE_TEST_SUITE_P(
    All, StagingCrash,
    testing::Values(Scenario{"new_folder"}, Scenario{"folder_by_exchange", Kind::kDirectory, true},
                    Scenario{"folder_moved_aside", Kind::kDirectory, true, false},
                    Scenario{"new_file", Kind::kFile}, Scenario{"file_over_file", Kind::kFile, true},
                    Scenario{"folder_by_exchange_with_journal", Kind::kDirectory, true, true, true},
                    Scenario{"folder_moved_aside_with_journal", Kind::kDirectory, true, false, true}),
    [](const auto& instance) { return instance.param.name; });

TEST_P(StagingCrash, ACutAfterAnyCallLeavesTheOldOutputOrTheNewOne) {
  const int64_t num_mutations = num_calls("any");
  ASSERT_GT(num_mutations, 5);
  for (int64_t call = 1; call <= num_mutations; ++call) {
    const auto disk = prepared_disk(GetParam());
    EXPECT_THROW(save_until(disk, call), PowerCut);
    for_each_survivor(*disk, 0, kSeeds,
                      [&](const std::shared_ptr<SimulatedDisk>& survivor, const std::string& mode) {
                        SCOPED_TRACE("cut at call " + std::to_string(call) + ", " + mode);
                        check_recovery(survivor);
                      });
    if (HasFatalFailure()) return;
  }
}

// The process dies, another one saves again on the same disk, and during that the power fails.
TEST_P(StagingCrash, ACutDuringTheSaveAfterADeathDoesNoMoreHarm) {
  const int64_t num_mutations = num_calls("any");
  for (int64_t death = 1; death <= num_mutations; ++death) {
    for (int64_t cut = 1;; ++cut) {
      const auto disk = prepared_disk(GetParam());
      EXPECT_THROW(save_until(disk, death), PowerCut);
      try {
        save_until(disk, cut);
        break;
      } catch (const PowerCut&) {
      }
      for_each_survivor(*disk, static_cast<uint64_t>(death * 1000 + cut * 10), 3,
                        [&](const std::shared_ptr<SimulatedDisk>& survivor, const std::string& mode) {
                          SCOPED_TRACE("death at call " + std::to_string(death) + ", cut at call " +
                                       std::to_string(cut) + ", " + mode);
                          check_whole(survivor);
                        });
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(StagingCrash, WhatWasCommittedSurvivesAnyCut) {
  const auto disk = prepared_disk(GetParam());
  save(faulty_storage(disk, faults_of(GetParam(), {})), GetParam());
  for_each_survivor(*disk, 0, kSeeds,
                    [&](const std::shared_ptr<SimulatedDisk>& survivor, const std::string& mode) {
                      EXPECT_TRUE(state_of(*survivor) == new_state()) << mode;
                    });
}

TEST_P(StagingCrash, FailureOfAnyCallIsReportedAndLeavesTheOldOutputOrTheNewOne) {
  const std::map<int, ErrorCode> codes = {
      {EIO, ErrorCode::kIo}, {ENOSPC, ErrorCode::kNoSpace}, {EACCES, ErrorCode::kIo}};
  for (const std::string op : {"open", "write", "truncate", "sync", "close", "list", "stat", "mkdir",
                               "rename", "exchange", "remove", "syncdir", "lock"}) {
    const int64_t num_op_calls = num_calls(op);
    for (const auto& [error_number, code] : codes) {
      for (int64_t call = 1; call <= num_op_calls; ++call) {
        SCOPED_TRACE(op + " number " + std::to_string(call) + " fails with " + std::to_string(error_number));
        if (op == "exchange" && !GetParam().has_exchange) continue;
        const auto disk = prepared_disk(GetParam());
        bool failed = false;
        try {
          save(faulty_storage(disk, faults_of(GetParam(), {{op, call, error_number}})), GetParam());
        } catch (const StorageError& error) {
          failed = true;
          EXPECT_EQ(error.code(), code);
          EXPECT_EQ(error.error_number(), error_number);
          EXPECT_TRUE(error.path().starts_with("/parent")) << error.what();
        }
        const FolderContent found = state_of(*disk);
        // Once the names have changed only the sync of the parent can still fail the save, and what fails
        // later, when the old output is removed, is not reported.
        const bool is_old = found == old_state(), is_new = found == new_state();
        ASSERT_TRUE(failed ? is_old || (is_new && op == "syncdir") : is_new);
        if (!failed) {
          const auto durable = disk->after_power_cut(Survival::kDropUnsynced, 0);
          ASSERT_TRUE(state_of(*durable) == new_state());
        }
        for_each_survivor(*disk, static_cast<uint64_t>(call), 1,
                          [&](const std::shared_ptr<SimulatedDisk>& survivor, const std::string& mode) {
                            SCOPED_TRACE(mode);
                            check_recovery(survivor);
                          });
        if (HasFatalFailure()) return;
      }
    }
  }
}

// A removal that ends after some call: the output is whole or gone, and it is not gone where it must stay.
class RemovalCrash : public testing::TestWithParam<bool> {
 protected:
  // The output, with a pin where one is wanted.
  std::shared_ptr<SimulatedDisk> disk_with_output() const {
    const auto disk = prepared_disk({"", Kind::kDirectory, true});
    if (!GetParam()) return disk;
    disk->make_directory(join_path(kFinal, "milepost.pin"));
    disk->sync_directory(std::string(kFinal));
    return disk;
  }

  // With the fault, if it is met.
  static void remove(const std::shared_ptr<Storage>& disk, const Fault& fault) {
    try {
      StagedOutput::remove(faulty_storage(disk, {fault}), std::string(kFinal));
    } catch (const PowerCut&) {
    } catch (const StorageError& error) {
      EXPECT_EQ(error.error_number(), fault.error_number);
    }
  }

  // What is left of the disk in each mode.
  void check(const SimulatedDisk& disk) const {
    const FolderContent whole = read_content(*disk_with_output(), std::string(kFinal));
    const auto survivor = [&](Survival survival, uint64_t seed) {
      const auto storage = disk.after_power_cut(survival, seed);
      const FolderContent found = read_content(*storage, std::string(kFinal));
      ASSERT_TRUE(found == whole || !found);
      settle_stale_staging(storage, "/parent");
      const FolderContent settled = read_content(*storage, std::string(kFinal));
      ASSERT_TRUE(settled == whole || (!settled && !GetParam()));
      for (const FileInfo& info : storage->list("/parent")) ASSERT_EQ(info.name, "out") << "debris";
    };
    survivor(Survival::kDropUnsynced, 0);
    survivor(Survival::kKeepAll, 0);
    for (uint64_t seed = 0; seed < kSeeds; ++seed) survivor(Survival::kRandom, seed);
  }
};

INSTANTIATE_TEST_SUITE_P(All, RemovalCrash, testing::Bool(), [](const auto& instance) {
  return instance.param ? std::string("pinned") : std::string("plain");
});

TEST_P(RemovalCrash, ACutAfterAnyCallLeavesItWholeOrGone) {
  const auto whole = faulty_storage(disk_with_output(), {});
  StagedOutput::remove(whole, std::string(kFinal));
  ASSERT_GT(whole->calls("any"), 5);
  for (int64_t call = 1; call <= whole->calls("any"); ++call) {
    SCOPED_TRACE("cut at call " + std::to_string(call));
    const auto disk = disk_with_output();
    remove(disk, {"any", call, 0});
    check(*disk);
    if (HasFatalFailure()) return;
  }
}

// The process dies, another one clears the folder, and during that the power fails.
TEST_P(RemovalCrash, ACutWhileItsDebrisIsClearedDoesNoMoreHarm) {
  const auto whole = faulty_storage(disk_with_output(), {});
  StagedOutput::remove(whole, std::string(kFinal));
  for (int64_t death = 1; death <= whole->calls("any"); ++death) {
    for (int64_t cut = 1;; ++cut) {
      SCOPED_TRACE("death at call " + std::to_string(death) + ", cut at call " + std::to_string(cut));
      const auto disk = disk_with_output();
      remove(disk, {"any", death, 0});
      const auto faulty = faulty_storage(disk, {{"any", cut, 0}});
      bool is_cut = false;
      try {
        settle_stale_staging(faulty, "/parent");
      } catch (const PowerCut&) {
        is_cut = true;
      }
      check(*disk);
      if (HasFatalFailure()) return;
      if (!is_cut) break;
    }
  }
}

TEST_P(RemovalCrash, FailureOfAnyCallLeavesItWholeOrGone) {
  for (const std::string op : {"list", "stat", "mkdir", "rename", "remove", "syncdir", "lock"}) {
    const auto whole = faulty_storage(disk_with_output(), {});
    StagedOutput::remove(whole, std::string(kFinal));
    for (int64_t call = 1; call <= whole->calls(op); ++call) {
      SCOPED_TRACE(op + " number " + std::to_string(call));
      const auto disk = disk_with_output();
      remove(disk, {op, call, EIO});
      check(*disk);
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace milepost
