#include "engine/write_images.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <latch>
#include <numeric>
#include <random>

#include "engine/test_memory.h"
#include "milepost/base/checksum.h"
#include "milepost/base/error.h"
#include "storage/test_files.h"

namespace milepost {
namespace {

constexpr int64_t kBlock = 1 << 20;  // of a buffered file

// A literal of 5 bytes, the payloads, and a literal that holds their CRCs.
class TestImage final : public FileImage {
 public:
  TestImage(std::string name, const std::vector<int64_t>& payloads) : name_(std::move(name)) {
    add(5, -1);
    for (size_t i = 0; i < payloads.size(); ++i) add(payloads[i], static_cast<int64_t>(i));
    add(static_cast<int64_t>(payloads.size() * 4), -1);
  }
  const std::string& name() const override { return name_; }
  int64_t size() const override { return size_; }
  int64_t num_parts() const override { return static_cast<int64_t>(parts_.size()); }
  Part part(int64_t index) const override { return parts_[static_cast<size_t>(index)]; }
  bool wants_crc() const override { return true; }
  void render(int64_t index, std::span<const uint32_t> crcs, ByteVector& out) const override {
    const Bytes bytes = index == 0 ? as_bytes("begin") : std::as_bytes(crcs);
    out.insert(out.end(), bytes.begin(), bytes.end());
  }

 private:
  void add(int64_t length, int64_t payload) {
    parts_.push_back({size_, length, payload});
    size_ += length;
  }
  std::string name_;
  std::vector<Part> parts_;
  int64_t size_ = 0;
};

// Bytes of a file: element i of `count` float32 is i. Tells a hook before each read.
class HookedSource final : public ByteSource {
 public:
  explicit HookedSource(int64_t count, std::function<void(int64_t offset)> hook = {})
      : values_(static_cast<size_t>(count)), hook_(std::move(hook)) {
    std::iota(values_.begin(), values_.end(), 0.0F);
  }
  int64_t size() const override { return static_cast<int64_t>(values_.size() * 4); }
  void read_at(int64_t offset, MutableBytes dst) const override {
    if (hook_) hook_(offset);
    std::memcpy(dst.data(), reinterpret_cast<const std::byte*>(values_.data()) + offset, dst.size());
  }
  const std::string& name() const override { return name_; }

 private:
  std::vector<float> values_;
  std::function<void(int64_t)> hook_;
  std::string name_ = "source";
};

class WriteImages : public ::testing::Test {
 protected:
  // Makes `source_` hold one float32 vector that is written as `dtype`.
  void set_source(std::shared_ptr<const ByteSource> bytes, DType dtype) {
    MemoryCheckpoint memory;
    const Dims shape{bytes->size() / 4};
    memory.tensor("w", DType::kFloat32, shape, std::move(bytes));
    source_.checkpoint = memory.open();
    source_.views = {{0, dtype, -1}};
  }
  void add_file(const std::vector<PayloadRef>& payloads) {
    std::vector<int64_t> lengths;
    for (const PayloadRef& payload : payloads) lengths.push_back(source_.length(payload));
    const std::string name = std::to_string(files_.size());
    files_.push_back({std::make_unique<TestImage>(name, lengths), payloads, &source_});
    paths_.push_back("/" + name);
  }
  std::shared_ptr<Storage> write(int num_threads, Progress* progress = nullptr) {
    WriteOptions options;
    options.num_threads = num_threads;
    options.progress = progress;
    std::shared_ptr<Storage> storage = memory_storage();
    write_images(*storage, paths_, files_, options);
    return storage;
  }
  // Writes with digests; every file has the one of what lies there.
  void expect_digests(Storage& storage, const std::string& folder, WriteOptions options) {
    options.hash_files = true;
    std::vector<std::string> paths;
    for (const std::string& path : paths_) paths.push_back(folder + path);
    const std::vector<Sha256Digest> digests = write_images(storage, paths, files_, options);
    ASSERT_EQ(digests.size(), paths.size());
    for (size_t i = 0; i < paths.size(); ++i) {
      EXPECT_EQ(digests[i], sha256(content(storage, paths[i]))) << paths[i];
    }
  }
  static ByteVector content(Storage& storage, const std::string& path) {
    const auto file = storage.open_read(path);
    return read_all(*file, file->size());
  }
  static ByteVector expected(const std::vector<Bytes>& payloads) {
    VectorSink sink;
    sink.append(as_bytes("begin"));
    for (Bytes payload : payloads) sink.append(payload);
    for (Bytes payload : payloads) {
      const uint32_t crc = crc32(0, payload);
      sink.append(std::as_bytes(std::span(&crc, 1)));
    }
    return sink.data;
  }

  PayloadSource source_;
  std::vector<OutputFile> files_;
  std::vector<std::string> paths_;
};

constexpr PayloadRef kWhole{PayloadRef::Kind::kTensor, 0, -1};

TEST_F(WriteImages, CastsElementsThatStraddleBlocks) {
  const int64_t count = 3 * kBlock / 8 + 7;
  std::vector<double> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), 0.0);
  set_source(std::make_shared<HookedSource>(count), DType::kFloat64);
  source_.owned.push_back(ByteVector(3, std::byte{'x'}));
  add_file({kWhole, {PayloadRef::Kind::kOwned, 0, -1}});
  const ByteVector want = expected({std::as_bytes(std::span(values)), source_.owned[0]});
  for (int num_threads : {1, 2, 5}) EXPECT_EQ(content(*write(num_threads), "/0"), want) << num_threads;
}

TEST_F(WriteImages, CopiesElementsThatStraddleBlocksFromFilesAndMemory) {
  std::vector<float> values(static_cast<size_t>(2 * kBlock / 4 + 1));
  std::iota(values.begin(), values.end(), 0.0F);
  const auto bytes = std::as_bytes(std::span(values));
  for (const bool in_memory : {false, true}) {
    std::shared_ptr<const ByteSource> file =
        std::make_shared<HookedSource>(static_cast<int64_t>(values.size()));
    if (in_memory) file = std::make_shared<MemorySource>(bytes, "memory");
    set_source(std::move(file), DType::kFloat32);
    source_.ranges = {{3, kBlock + 11, 0, Location::kRowMajor}};
    files_.clear();
    paths_.clear();
    add_file({kWhole, {PayloadRef::Kind::kFileRange, 0, -1}});
    EXPECT_EQ(content(*write(3), "/0"), expected({bytes, bytes.subspan(3, kBlock + 11)}));
  }
}

TEST_F(WriteImages, WritesManySmallFilesAndEmptyPayloads) {
  for (int32_t i = 0; i < 500; ++i) {
    source_.owned.push_back(ByteVector(static_cast<size_t>(i % 3), static_cast<std::byte>(i)));
  }
  set_source(std::make_shared<HookedSource>(1), DType::kFloat32);
  for (int32_t i = 0; i < 500; ++i) add_file({{PayloadRef::Kind::kOwned, i, -1}});
  for (int num_threads : {1, 4}) {
    const auto storage = write(num_threads);
    for (size_t i = 0; i < paths_.size(); ++i) {
      ASSERT_EQ(content(*storage, paths_[i]), expected({source_.owned[i]})) << i;
    }
  }
}

// Where the one large read of a block starts; elements that straddle blocks are read apart.
constexpr int64_t body_offset(int64_t block) { return block * kBlock - 4; }

// Four workers: block 2 waits for block 1, which goes on only when block 3 is about to fail.
TEST_F(WriteImages, ReportsTheFailureOfTheFirstBlockWhoeverFailsFirst) {
  for (const bool first_fails : {false, true}) {
    for (int round = 0; round < 20; ++round) {
      std::latch third(1);
      const auto hook = [&](int64_t offset) {
        if (offset == body_offset(3)) {
          third.count_down();
          throw FormatError(ErrorCode::kChecksum, "block 3");
        }
        if (offset != body_offset(1)) return;
        third.wait();
        if (first_fails) throw FormatError(ErrorCode::kChecksum, "block 1");
      };
      set_source(std::make_shared<HookedSource>(8 * kBlock / 4, hook), DType::kFloat32);
      files_.clear();
      paths_.clear();
      add_file({kWhole});
      try {
        write(4);
        FAIL();
      } catch (const FormatError& error) {
        EXPECT_EQ(error.summary(), first_fails ? "block 1" : "block 3");
        EXPECT_EQ(error.key(), "w");
      }
    }
  }
}

TEST_F(WriteImages, StopsWhenCancelled) {
  for (int num_threads : {1, 2, 4}) {
    Progress progress;
    set_source(std::make_shared<HookedSource>(8 * kBlock / 4, [&](int64_t) { progress.cancel = true; }),
               DType::kFloat32);
    files_.clear();
    paths_.clear();
    add_file({kWhole});
    try {
      write(num_threads, &progress);
      FAIL();
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("cancelled"));
    }
    EXPECT_LE(progress.done_bytes, num_threads * kBlock);
  }
}

TEST_F(WriteImages, ABudgetForFewWorkersIsKept) {
  for (const bool hash_files : {false, true}) {
    WriteOptions options;
    options.num_threads = 16;
    options.max_memory_bytes = 16 << 20;
    options.hash_files = hash_files;
    EXPECT_LE(write_buffer_bytes(options), options.max_memory_bytes);
  }
}

// Files of any sizes, in groups that are full and not, direct and buffered, cast and from memory.
TEST_F(WriteImages, HashesWhatItWrites) {
  std::mt19937_64 random(17);
  const TestFolder folder;
  for (int round = 0; round < 24; ++round) {
    files_.clear();
    paths_.clear();
    source_.owned.clear();
    set_source(std::make_shared<HookedSource>(static_cast<int64_t>(random() % (1 << 20))),
               round % 2 == 0 ? DType::kFloat64 : DType::kFloat32);
    const size_t count = 1 + random() % 9;
    for (size_t i = 0; i < count; ++i) {
      source_.owned.push_back(ByteVector(random() % (round % 3 == 0 ? 100 : 3 * kBlock), std::byte{'x'}));
    }
    for (size_t i = 0; i < count; ++i) {
      std::vector<PayloadRef> payloads = {{PayloadRef::Kind::kOwned, static_cast<int32_t>(i), -1}};
      if (random() % 3 == 0) payloads.push_back(kWhole);
      add_file(payloads);
    }
    WriteOptions options;
    options.num_threads = static_cast<int>(1 + random() % 5);
    options.max_memory_bytes = static_cast<int64_t>(1 + random() % 64) << 20;
    options.sync = false;
    expect_digests(*memory_storage(), "", options);
    expect_digests(*posix_storage(), folder.path(), options);
  }
}

TEST_F(WriteImages, HashesBlocksThatAnInterruptedRunLeft) {
  set_source(std::make_shared<HookedSource>(5 * kBlock / 4), DType::kFloat32);
  add_file({kWhole});
  add_file({kWhole, kWhole});
  const std::shared_ptr<Storage> storage = memory_storage();
  WriteOptions options;
  options.hash_files = true;
  const Journal::Policy policy{1, std::chrono::hours(1), 0};
  Journal first(*storage, "/journal", {}, policy);
  const std::vector<Sha256Digest> digests = write_images(*storage, paths_, files_, options, &first);
  first.flush();
  Journal second(*storage, "/journal", {}, policy);
  ASSERT_EQ(second.read({files_[0].image->size(), files_[1].image->size()}), Journal::Found::kRecords);
  EXPECT_EQ(write_images(*storage, paths_, files_, options, &second), digests);
  EXPECT_EQ(second.bytes_kept(), files_[0].image->size() + files_[1].image->size());
  EXPECT_EQ(digests[1], sha256(content(*storage, paths_[1])));
}

// The other files of the group wait for the one that fails, and give up.
TEST_F(WriteImages, AFailureEndsAllFilesThatAreHashedTogether) {
  const auto hook = [](int64_t offset) {
    if (offset == body_offset(2)) throw FormatError(ErrorCode::kChecksum, "block 2");
  };
  set_source(std::make_shared<HookedSource>(8 * kBlock / 4, hook), DType::kFloat32);
  source_.owned.push_back(ByteVector(9 * kBlock));
  for (int i = 0; i < 3; ++i) add_file({{PayloadRef::Kind::kOwned, 0, -1}});
  add_file({kWhole});
  for (int num_threads : {1, 2, 5}) {
    WriteOptions options;
    options.num_threads = num_threads;
    options.hash_files = true;
    try {
      write_images(*memory_storage(), paths_, files_, options);
      FAIL();
    } catch (const FormatError& error) {
      EXPECT_EQ(error.summary(), "block 2");
    }
  }
}

}  // namespace
}  // namespace milepost
