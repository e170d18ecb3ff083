// An interrupted conversion goes on from its journal, whatever interrupted it, and ends with the bytes of one
// that was not.
#include "engine/resume.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "engine/test_memory.h"
#include "milepost/engine/derived.h"
#include "milepost/storage/faulty.h"
#include "milepost/storage/simulated_disk.h"
#include "storage/test_files.h"

namespace milepost {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr int64_t kBlock = 1 << 20;
// Every block is recorded at once, and anything is worth keeping.
constexpr Journal::Policy kEager{1, std::chrono::hours(1), 0};

// Counts what is read of it; may fail or do something at a read.
class WatchedSource final : public ByteSource {
 public:
  explicit WatchedSource(std::string bytes) : bytes_(std::move(bytes)) {}
  int64_t size() const override { return static_cast<int64_t>(bytes_.size()); }
  void read_at(int64_t offset, MutableBytes dst) const override {
    bytes_read += static_cast<int64_t>(dst.size());
    if (before_read) before_read(offset);
    std::memcpy(dst.data(), bytes_.data() + offset, dst.size());
  }
  const std::string& name() const override { return name_; }

  mutable std::atomic<int64_t> bytes_read{0};
  std::function<void(int64_t)> before_read;

 private:
  std::string bytes_, name_ = "source";
};

// Three tensors, one of several blocks, and a number.
struct Source {
  explicit Source(uint64_t seed = 1, int64_t blocks = 3) {
    for (const int64_t size : {blocks * kBlock + 400, kBlock, int64_t{4000}}) {
      files.push_back(std::make_shared<WatchedSource>(test_bytes(static_cast<size_t>(size), seed++)));
      memory.tensor("w" + std::to_string(files.size()), DType::kFloat32, Dims{size / 4}, files.back());
    }
    checkpoint = memory.open();
  }
  int64_t bytes_read() const {
    int64_t sum = 0;
    for (const auto& file : files) sum += file->bytes_read;
    return sum;
  }
  MemoryCheckpoint memory;
  std::vector<std::shared_ptr<WatchedSource>> files;
  std::shared_ptr<const Checkpoint> checkpoint;
};

class Resume : public ::testing::TestWithParam<CheckpointFormat> {
 protected:
  std::string path() const { return GetParam() == CheckpointFormat::kTorchSave ? "/d/out.pth" : "/d/out"; }
  ConvertOptions options(bool resume = false) const {
    ConvertOptions made;
    made.to = GetParam();
    made.files = GetParam() == CheckpointFormat::kDcp ? 2 : 1;
    made.num_threads = 1;
    made.resume = resume;
    return made;
  }
  ConvertReport run(const std::shared_ptr<Storage>& storage, const Source& source,
                    const ConvertOptions& options, const Journal::Policy& policy = kEager) const {
    return convert_with(source.checkpoint, StorageLocation{storage, path()}, options, policy);
  }
  // What an uninterrupted conversion gives.
  FolderContent expected(const Source& source) const {
    const auto storage = made_disk();
    run(storage, source, options());
    return read_content(*storage, "/d");
  }
  static std::shared_ptr<SimulatedDisk> made_disk() {
    auto disk = simulated_disk();
    disk->make_directory("/d");
    disk->sync_directory("/");
    return disk;
  }
  // Fails at write number `call`, journal and all.
  Error interrupt(const std::shared_ptr<Storage>& storage, const Source& source, int64_t call = 5) const {
    const auto faulty = faulty_storage(storage, {{"write", call, ENOSPC}});
    return error_of([&] { run(faulty, source, options()); });
  }
  // The staging folder, empty when there is none.
  static std::string staging(Storage& storage) {
    for (const FileInfo& info : storage.list("/d")) {
      if (info.name.starts_with(".milepost-staging")) return join_path("/d", info.name);
    }
    return {};
  }

  const Source source_;
};

INSTANTIATE_TEST_SUITE_P(Formats, Resume,
                         ::testing::Values(CheckpointFormat::kDcp, CheckpointFormat::kSafetensors,
                                           CheckpointFormat::kTorchSave),
                         [](const auto& instance) { return std::string(format_name(instance.param)); });

TEST_P(Resume, GoesOnAfterTheFailureOfAnyCall) {
  const FolderContent want = expected(source_);
  int64_t most_resumed = 0;
  for (const char* op : {"open", "write", "truncate", "sync", "close"}) {
    for (int64_t call = 1;; ++call) {
      SCOPED_TRACE(std::string(op) + " " + std::to_string(call));
      const auto disk = made_disk();
      const auto faulty = faulty_storage(disk, {{op, call, EIO}});
      try {
        run(faulty, source_, options());
        break;
      } catch (const StorageError& error) {
        EXPECT_EQ(error.error_number(), EIO);
        EXPECT_EQ(staging(*disk).empty(), std::string(error.what()).find("resume") == std::string::npos);
      }
      const ConvertReport report = run(disk, source_, options(true));
      ASSERT_TRUE(read_content(*disk, "/d") == want);
      EXPECT_LE(report.bytes_resumed, report.bytes_out);
      most_resumed = std::max(most_resumed, report.bytes_resumed);
    }
  }
  EXPECT_GE(most_resumed, 4 * kBlock);
}

TEST_P(Resume, GoesOnAfterAPowerCutAtAnyCallWhateverSurvives) {
  const FolderContent want = expected(source_);
  for (int64_t call = 1;; ++call) {
    SCOPED_TRACE(call);
    const auto disk = made_disk();
    try {
      run(faulty_storage(disk, {{"any", call, 0}}), source_, options());
      break;
    } catch (const PowerCut&) {
    }
    for (uint64_t seed = 0; seed < 6; ++seed) {
      const auto survival = seed == 0   ? SimulatedDisk::Survival::kDropUnsynced
                            : seed == 1 ? SimulatedDisk::Survival::kKeepAll
                                        : SimulatedDisk::Survival::kRandom;
      const auto after = disk->after_power_cut(survival, seed + static_cast<uint64_t>(call) * 100);
      if (after->stat(path())) continue;  // it was published
      run(after, source_, options(true));
      ASSERT_TRUE(read_content(*after, "/d") == want) << seed;
    }
  }
}

// Twice interrupted: the second run's records follow the first's.
TEST_P(Resume, GoesOnAsOftenAsNeeded) {
  const auto disk = made_disk();
  interrupt(disk, source_, 3);
  for (int round = 0; round < 3; ++round) {
    const auto faulty = faulty_storage(disk, {{"write", 3, EIO}});
    EXPECT_THROW(run(faulty, source_, options(true)), StorageError);
  }
  const ConvertReport report = run(disk, source_, options(true));
  EXPECT_GE(report.bytes_resumed, 3 * kBlock);
  EXPECT_TRUE(read_content(*disk, "/d") == expected(source_));
}

TEST_P(Resume, ReadsOnlyTheRestOfTheSource) {
  const auto disk = made_disk();
  interrupt(disk, source_, 7);
  const int64_t before = source_.bytes_read();
  Progress progress;
  ConvertOptions resume = options(true);
  resume.progress = &progress;
  const ConvertReport report = run(disk, source_, resume);
  EXPECT_GE(report.bytes_resumed, 3 * kBlock);
  EXPECT_LT(source_.bytes_read() - before, report.bytes_out - report.bytes_resumed + 4096);
  EXPECT_LT(report.disk_bytes_needed, report.bytes_out - 2 * kBlock) << "what lies there needs no room";
  EXPECT_EQ(progress.done_bytes, progress.total_bytes);
  EXPECT_THAT(report.warnings, IsEmpty());
}

TEST_P(Resume, WritesBlocksThatAreNotAsRecordedAgain) {
  const auto disk = made_disk();
  interrupt(disk, source_, 7);
  const auto untouched = disk->after_power_cut(SimulatedDisk::Survival::kKeepAll, 0);
  const int64_t whole = run(untouched, source_, options(true)).bytes_resumed;
  int64_t num_flipped = 0;
  const std::string data = join_path(staging(*disk), "data");
  const FolderContent written = read_content(*disk, data);
  for (const auto& [name, content] : *written) {
    std::string text = content;
    if (text.empty()) continue;
    text[text.size() / 2] = static_cast<char>(text[text.size() / 2] ^ 1);
    write_file(*disk, name.empty() ? data : join_path(data, name), text);
    ++num_flipped;
  }
  ASSERT_GT(num_flipped, 0);
  const ConvertReport report = run(disk, source_, options(true));
  EXPECT_LT(report.bytes_resumed, whole);
  EXPECT_GT(report.bytes_resumed, 0);
  EXPECT_TRUE(read_content(*disk, "/d") == expected(source_));
}

TEST_P(Resume, FilesThatAreGoneOrStrangeAreMadeGood) {
  const auto disk = made_disk();
  interrupt(disk, source_, 7);
  const std::string data = join_path(staging(*disk), "data");
  if (GetParam() == CheckpointFormat::kTorchSave) {
    write_file(*disk, data, "cut short");
  } else {
    const std::vector<FileInfo> files = disk->list(data);
    disk->remove_file(join_path(data, files[0].name));
    write_file(*disk, join_path(data, "stranger"), "not of this conversion");
    disk->make_directory(join_path(data, "folder"));
  }
  run(disk, source_, options(true));
  EXPECT_TRUE(read_content(*disk, "/d") == expected(source_));
}

TEST_P(Resume, AnotherSourceOrOtherOptionsAreRefusedAndWhatIsThereStays) {
  const auto disk = made_disk();
  interrupt(disk, source_, 7);
  const auto refusal = [&](const Source& source, const ConvertOptions& options) {
    const FolderContent before = read_content(*disk, "/d");
    const Error error = error_of([&] { run(disk, source, options); });
    EXPECT_EQ(error.code(), ErrorCode::kBadArgument);
    EXPECT_EQ(error.path(), path());
    EXPECT_TRUE(read_content(*disk, "/d") == before);
    return std::string(error.what());
  };
  EXPECT_THAT(refusal(Source(1, 4), options(true)), HasSubstr("the source is not what it was"));
  ConvertOptions cast = options(true);
  cast.dtype = DType::kBFloat16;
  EXPECT_THAT(refusal(source_, cast), HasSubstr("the options are not those"));
  ConvertOptions part = options(true);
  part.match = {"w1"};
  EXPECT_THAT(refusal(source_, part), HasSubstr("start again without resume"));
  EXPECT_GT(run(disk, source_, options(true)).bytes_resumed, 0);
}

TEST_P(Resume, ThreadsAndMemoryMayDiffer) {
  const auto disk = made_disk();
  interrupt(disk, source_, 7);
  ConvertOptions resume = options(true);
  resume.num_threads = 3;
  resume.max_memory_bytes = 32 << 20;
  resume.sync = false;
  EXPECT_GE(run(disk, source_, resume).bytes_resumed, 3 * kBlock);
  EXPECT_TRUE(read_content(*disk, "/d") == expected(source_));
}

TEST_P(Resume, StartsFromTheBeginningAndSaysSoWhereThereIsNothing) {
  const auto disk = made_disk();
  const ConvertReport report = run(disk, source_, options(true));
  EXPECT_EQ(report.bytes_resumed, 0);
  ASSERT_THAT(report.warnings, SizeIs(1));
  EXPECT_THAT(report.warnings[0], HasSubstr("nothing to resume"));
  EXPECT_TRUE(read_content(*disk, "/d") == expected(source_));

  const auto other = made_disk();
  interrupt(other, source_, 7);
  write_file(*other, join_path(staging(*other), "journal"), "garbage");
  EXPECT_THAT(run(other, source_, options(true)).warnings, SizeIs(1));
  EXPECT_TRUE(read_content(*other, "/d") == expected(source_));
}

TEST_P(Resume, WithoutItWhatWasWrittenIsRemoved) {
  const auto disk = made_disk();
  interrupt(disk, source_, 7);
  const ConvertReport report = run(disk, source_, options());
  EXPECT_EQ(report.bytes_resumed, 0);
  EXPECT_TRUE(read_content(*disk, "/d") == expected(source_));
}

TEST_P(Resume, LittleIsNotKept) {
  const auto disk = made_disk();
  const auto faulty = faulty_storage(disk, {{"write", 4, ENOSPC}});
  const Error error = error_of([&] { run(faulty, source_, options(), Journal::Policy{}); });
  EXPECT_THAT(error.what(), Not(HasSubstr("resume")));
  EXPECT_EQ(staging(*disk), "");
}

TEST_P(Resume, ErrorsOfTheSystemSayThatItCanBeResumedAfterWhatElseTheyAdvise) {
  const auto disk = made_disk();
  const Error error = interrupt(disk, source_, 7);
  EXPECT_EQ(error.code(), ErrorCode::kNoSpace);
  EXPECT_EQ(error.error_number(), ENOSPC);
  EXPECT_THAT(error.what(),
              HasSubstr("No space left on device; free some space or choose another place; what "
                        "was written is kept: resume to continue"));
}

TEST_P(Resume, ACancelledOneIsKept) {
  const auto disk = made_disk();
  Progress progress;
  source_.files[0]->before_read = [&](int64_t offset) { progress.cancel = offset > 2 * kBlock; };
  ConvertOptions cancelled = options();
  cancelled.progress = &progress;
  EXPECT_THAT(error_of([&] { run(disk, source_, cancelled); }).what(), HasSubstr("resume to continue"));
  source_.files[0]->before_read = {};
  EXPECT_GT(run(disk, source_, options(true)).bytes_resumed, 0);
  EXPECT_TRUE(read_content(*disk, "/d") == expected(source_));
}

TEST_P(Resume, ADamagedSourceLeavesNothingUnlessResumed) {
  const auto fail = [](int64_t offset) {
    if (offset > kBlock) throw FormatError(ErrorCode::kChecksum, "damaged");
  };
  const auto disk = made_disk();
  source_.files[0]->before_read = fail;
  EXPECT_EQ(error_of([&] { run(disk, source_, options()); }).code(), ErrorCode::kChecksum);
  EXPECT_EQ(staging(*disk), "");
  source_.files[0]->before_read = {};
  interrupt(disk, source_, 3);
  source_.files[0]->before_read = fail;
  EXPECT_EQ(error_of([&] { run(disk, source_, options(true)); }).code(), ErrorCode::kChecksum);
  EXPECT_NE(staging(*disk), "");
}

// A sync that failed says that any block may be lost, though it can still be read back.
TEST_P(Resume, AFileWhoseSyncFailedIsWrittenAgain) {
  const auto disk = made_disk();
  const auto faulty = faulty_storage(disk, {{"sync", 1, EIO}});
  EXPECT_THROW(run(faulty, source_, options()), StorageError);
  const ConvertReport report = run(disk, source_, options(true));
  EXPECT_LT(report.bytes_resumed, 4 * kBlock);
  EXPECT_TRUE(read_content(*disk, "/d") == expected(source_));
}

TEST_P(Resume, ATakenNameLeavesItToBeResumedLater) {
  const auto disk = made_disk();
  interrupt(disk, source_, 7);
  write_file(*disk, path(), "PK\3\4");
  EXPECT_EQ(error_of([&] { run(disk, source_, options(true)); }).code(), ErrorCode::kExists);
  disk->remove_file(path());
  EXPECT_GT(run(disk, source_, options(true)).bytes_resumed, 0);
}

// On a real disk blocks are larger, written around the page cache, and files are laid out beforehand.
TEST_P(Resume, GoesOnOnARealDisk) {
  const TestFolder folder;
  const Source source(1, 20);
  const std::string name = GetParam() == CheckpointFormat::kTorchSave ? "out.pth" : "out";
  const auto convert_to = [&](const std::shared_ptr<Storage>& storage, const std::string& path, bool resume) {
    return convert_with(source.checkpoint, StorageLocation{storage, folder / path}, options(resume), kEager);
  };
  posix_storage()->make_directory(folder / "whole");
  convert_to(posix_storage(), "whole/" + name, false);
  for (int64_t call = 1;; ++call) {
    const auto faulty = faulty_storage(posix_storage(), {{"write", call, EIO}});
    try {
      convert_to(faulty, name, false);
      break;
    } catch (const StorageError&) {
    }
    convert_to(posix_storage(), name, true);
    ASSERT_TRUE(read_content(*posix_storage(), folder / name) ==
                read_content(*posix_storage(), folder / ("whole/" + name)))
        << call;
    posix_storage()->remove_tree(folder / name);
  }
}

TEST_P(Resume, ASourceWhoseFileWasTouchedIsAnotherOne) {
  const TestFolder folder;
  convert(source_.checkpoint, folder / "source.safetensors", [] {
    ConvertOptions options;
    options.to = CheckpointFormat::kSafetensors;
    return options;
  }());
  const auto disk = made_disk();
  const auto convert_from = [&](const std::shared_ptr<Storage>& storage, bool resume) {
    const auto source = Checkpoint::open(folder / "source.safetensors");
    return convert_with(source, StorageLocation{storage, path()}, options(resume), kEager);
  };
  const auto faulty = faulty_storage(disk, {{"write", 7, EIO}});
  EXPECT_THROW(convert_from(faulty, false), StorageError);
  timespec times[2] = {{0, UTIME_OMIT}, {1, 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, (folder / "source.safetensors").c_str(), times, 0), 0);
  EXPECT_THAT(error_of([&] { convert_from(disk, true); }).what(), HasSubstr("the source is not what it was"));
}

// What a derived checkpoint is made of is part of what is converted, though no catalog tells it.
TEST_P(Resume, OtherPartsOfADerivedCheckpointAreRefused) {
  const auto derived = [&](int64_t first) {
    KeyMap map;
    TensorPart part = whole_part(first, Dims{1000});
    part.origin = {5};
    map.add("rows", DType::kFloat32, Dims{1000}, {part});
    map.add("large", DType::kFloat32, Dims{3 * kBlock / 4 + 100},
            {whole_part(0, Dims{3 * kBlock / 4 + 100})});
    return derive(source_.checkpoint, std::move(map));
  };
  const auto disk = made_disk();
  const auto faulty = faulty_storage(disk, {{"write", 5, EIO}});
  const StorageLocation where{faulty, path()};
  EXPECT_THROW(convert_with(derived(0), where, options(), kEager), StorageError);
  EXPECT_THAT(error_of([&] { convert_with(derived(1), where, options(true), kEager); }).what(),
              HasSubstr("the options are not those"));
  EXPECT_GT(convert_with(derived(0), where, options(true), kEager).bytes_resumed, 0);
}

}  // namespace
}  // namespace milepost
