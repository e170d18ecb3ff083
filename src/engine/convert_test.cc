#include "milepost/engine/convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <span>
#include <string>

#include "engine/test_checkpoints.h"
#include "engine/test_memory.h"
#include "milepost/base/checksum.h"
#include "milepost/base/error.h"
#include "milepost/engine/load.h"

namespace milepost {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// Claims to be larger than any disk, and holds nothing.
class HugeSource final : public ByteSource {
 public:
  int64_t size() const override { return int64_t{1} << 42; }
  void read_at(int64_t, MutableBytes) const override { throw FormatError(ErrorCode::kIo, "not there"); }
  const std::string& name() const override { return name_; }

 private:
  std::string name_ = "huge";
};

class Convert : public ::testing::Test {
 protected:
  static ConvertOptions to(CheckpointFormat format) {
    ConvertOptions options;
    options.to = format;
    options.num_threads = 2;
    return options;
  }
  ConvertReport run(const std::shared_ptr<const Checkpoint>& source, const ConvertOptions& options,
                    const std::string& path = "/out") {
    return convert(source, StorageLocation{storage_, path}, options);
  }
  std::shared_ptr<const Checkpoint> result(const std::string& path = "/out") {
    return Checkpoint::open(StorageLocation{storage_, path});
  }
  template <typename E>
  E refusal(const std::shared_ptr<const Checkpoint>& source, const ConvertOptions& options,
            const std::string& path = "/out") {
    const size_t names = storage_->list("/").size();
    try {
      run(source, options, path);
    } catch (const E& error) {
      EXPECT_THAT(storage_->list("/"), SizeIs(names)) << "something was written";
      return error;
    }
    ADD_FAILURE() << "nothing was refused";
    throw std::logic_error("no error");
  }
  static std::vector<float> floats(const std::shared_ptr<const Checkpoint>& checkpoint,
                                   const std::string& name) {
    const auto index = checkpoint->catalog().find_tensor(name).value();
    const Dims shape = checkpoint->catalog().tensors()[static_cast<size_t>(index)].shape;
    std::vector<float> values(static_cast<size_t>(num_elements(shape)));
    load(
        checkpoint,
        {{name, DType::kFloat32, shape, Box::whole(shape), reinterpret_cast<std::byte*>(values.data()), {}}});
    return values;
  }
  static DType dtype_of(const std::shared_ptr<const Checkpoint>& checkpoint, const std::string& name) {
    const auto index = checkpoint->catalog().find_tensor(name).value();
    return checkpoint->catalog().tensors()[static_cast<size_t>(index)].dtype;
  }

  static MemoryCheckpoint one_tensor() {
    MemoryCheckpoint memory;
    memory.tensor("w", DType::kFloat32, Dims{2, 2}, std::vector<float>{1, 2, 3, 4});
    return memory;
  }

  std::shared_ptr<Storage> storage_ = memory_storage();
};

TEST_F(Convert, WritesEveryFormatWithTheDefaultOptions) {
  for (const auto format :
       {CheckpointFormat::kDcp, CheckpointFormat::kSafetensors, CheckpointFormat::kTorchSave}) {
    ConvertOptions options;
    options.to = format;
    const std::string path = "/" + std::string(format_name(format));
    const ConvertReport report = run(one_tensor().open(), options, path);
    EXPECT_EQ(result(path)->format(), format);
    EXPECT_THAT(floats(result(path), "w"), ElementsAre(1, 2, 3, 4));
    EXPECT_EQ(report.bytes_in, 16);
    EXPECT_EQ(report.tensors, 1);
  }
}

TEST_F(Convert, RefusesOptionsOutOfRange) {
  const auto source = one_tensor().open();
  const auto expect_refused = [&](auto&& change, const char* text) {
    ConvertOptions options;
    change(options);
    EXPECT_THAT(refusal<ValueError>(source, options).what(), HasSubstr(text));
  };
  expect_refused([](ConvertOptions& o) { o.files = -1; }, "number of files");
  expect_refused([](ConvertOptions& o) { o.files = 10'001; }, "number of files");
  expect_refused([](ConvertOptions& o) { o.shard_size_bytes = 0; }, "shard size");
  expect_refused([](ConvertOptions& o) { o.max_memory_bytes = (16 << 20) - 1; }, "16 MiB");
  expect_refused([](ConvertOptions& o) { o.dtype = DType::kInt8; }, "int8");
  expect_refused([](ConvertOptions& o) { o.dtype = DType::kFloat8E4M3FN; }, "float8_e4m3fn");
  expect_refused([](ConvertOptions& o) { o.to = CheckpointFormat::kMemory; }, "writes dcp");
}

TEST_F(Convert, CastsFloatingTensorsOfTheModelOnly) {
  MemoryCheckpoint memory = one_tensor();
  memory.tensor("optimizer.state.w.exp_avg", DType::kFloat32, Dims{1}, std::vector<float>{5});
  memory.tensor("position", DType::kInt64, Dims{1}, std::vector<int64_t>{6});
  memory.tensor("half", DType::kBFloat16, Dims{1}, std::vector<uint16_t>{0x3f80});
  ConvertOptions options = to(CheckpointFormat::kDcp);
  options.dtype = DType::kBFloat16;
  EXPECT_EQ(run(memory.open(), options).casts, 1);
  EXPECT_EQ(dtype_of(result(), "w"), DType::kBFloat16);
  EXPECT_EQ(dtype_of(result(), "optimizer.state.w.exp_avg"), DType::kFloat32);
  EXPECT_EQ(dtype_of(result(), "position"), DType::kInt64);
  EXPECT_THAT(floats(result(), "w"), ElementsAre(1, 2, 3, 4));
}

TEST_F(Convert, CastsFloat8ButNotBlockQuantisedCodes) {
  ConvertOptions options = to(CheckpointFormat::kSafetensors);
  options.dtype = DType::kBFloat16;
  MemoryCheckpoint plain;
  plain.tensor("w", DType::kFloat8E4M3FN, Dims{2}, std::vector<uint8_t>{0x38, 0x40});
  run(plain.open(), options, "/plain");
  EXPECT_THAT(floats(result("/plain"), "w"), ElementsAre(1, 2));

  const auto quantised = [](const std::string& codes, const std::string& scales) {
    MemoryCheckpoint memory;
    memory.tensor(codes, DType::kFloat8E4M3FN, Dims{2}, std::vector<uint8_t>{0x38, 0x40});
    memory.tensor(scales, DType::kFloat32, Dims{1}, std::vector<float>{2});
    return memory.open();
  };
  EXPECT_EQ(refusal<ValueError>(quantised("w", "w_scale_inv"), options).key(), "w");
  EXPECT_EQ(refusal<ValueError>(quantised("up_blocks", "up_scales"), options).key(), "up_blocks");
  options.dtype.reset();
  run(quantised("w", "w_scale_inv"), options);
  EXPECT_EQ(dtype_of(result(), "w"), DType::kFloat8E4M3FN);
}

TEST_F(Convert, ListsAllThatTheTargetCannotHoldAndLeavesItOutWhenAsked) {
  const auto source = [] {
    MemoryCheckpoint memory = one_tensor();
    memory.number("step", 7).number("epoch", 1);
    return memory.open();
  };
  ConvertOptions options = to(CheckpointFormat::kSafetensors);
  const auto error = refusal<FormatError>(source(), options);
  EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("2 of the entries"), HasSubstr("step: "), HasSubstr("epoch: ")));
  options.skip_unsupported = true;
  const ConvertReport report = run(source(), options);
  EXPECT_THAT(report.skipped, ElementsAre(HasSubstr("step: "), HasSubstr("epoch: ")));
  EXPECT_EQ(report.objects, 0);
  EXPECT_THAT(result()->catalog().names_in_order(), ElementsAre("w"));
}

TEST_F(Convert, RefusesDTypesThatTorchLacks) {
  MemoryCheckpoint memory;
  memory.tensor("codes", DType::kFloat6E2M3, Dims{4}, std::vector<uint8_t>{1, 2, 3});
  const auto source = memory.open();
  for (const auto format : {CheckpointFormat::kDcp, CheckpointFormat::kTorchSave}) {
    EXPECT_THAT(refusal<FormatError>(source, to(format)).what(), HasSubstr("codes: torch has no such dtype"));
  }
  run(source, to(CheckpointFormat::kSafetensors));
  EXPECT_EQ(dtype_of(result(), "codes"), DType::kFloat6E2M3);
}

TEST_F(Convert, TakesOnlyWhatMatchesAndRefusesGlobsWithoutUse) {
  MemoryCheckpoint memory = one_tensor();
  memory.tensor("v", DType::kFloat32, Dims{1}, std::vector<float>{5});
  const auto source = memory.open();
  ConvertOptions options = to(CheckpointFormat::kDcp);
  options.match = {"w", "layers.*"};
  EXPECT_THAT(refusal<ValueError>(source, options).what(), HasSubstr("layers.*"));
  options.match = {"w"};
  run(source, options);
  EXPECT_THAT(result()->catalog().names_in_order(), ElementsAre("w"));
}

TEST_F(Convert, WritesOneSafetensorsFileOrRefusesWhereSeveralAreNeeded) {
  MemoryCheckpoint memory = one_tensor();
  memory.tensor("v", DType::kFloat32, Dims{4}, std::vector<float>{5, 6, 7, 8});
  const auto source = memory.open();
  ConvertOptions options = to(CheckpointFormat::kSafetensors);
  run(source, options, "/one.safetensors");
  EXPECT_TRUE(storage_->stat("/one.safetensors")->is_regular);
  EXPECT_THAT(floats(result("/one.safetensors"), "v"), ElementsAre(5, 6, 7, 8));
  options.shard_size_bytes = 16;
  EXPECT_THAT(refusal<ValueError>(source, options, "/two.safetensors").what(), HasSubstr("2 files"));
  EXPECT_THAT(run(source, options).files, SizeIs(3));  // and an index
  EXPECT_TRUE(storage_->stat("/out/model.safetensors.index.json"));
  EXPECT_THAT(floats(result(), "w"), ElementsAre(1, 2, 3, 4));
}

TEST_F(Convert, TiedTensorsShareAStorageInTorchFiles) {
  MemoryCheckpoint memory;
  memory.tensor("embedding", DType::kFloat32, Dims{64, 64}, std::vector<float>(4096, 3));
  memory.catalog.add_tensor("output", DType::kFloat32, Dims{64, 64});
  memory.catalog.add_chunk(Dims{0, 0}, Dims{64, 64}, {0, 16384, 0, Location::kRowMajor});
  const ConvertReport report = run(memory.open(), to(CheckpointFormat::kTorchSave), "/out.pth");
  EXPECT_LT(report.bytes_out, 2 * 16384);
  const auto checkpoint = result("/out.pth");
  const Catalog& catalog = checkpoint->catalog();
  EXPECT_EQ(catalog.chunk_location(0).offset, catalog.chunk_location(1).offset);
  EXPECT_EQ(floats(checkpoint, "output"), std::vector<float>(4096, 3));
}

TEST_F(Convert, RefusesADiskThatIsTooSmallBeforeWriting) {
  MemoryCheckpoint memory;
  memory.tensor("w", DType::kFloat32, Dims{int64_t{1} << 40}, std::make_shared<HugeSource>());
  const auto source = memory.open();
  for (const auto format : {CheckpointFormat::kDcp, CheckpointFormat::kSafetensors}) {
    const auto error = refusal<StorageError>(source, to(format));
    EXPECT_EQ(error.code(), ErrorCode::kNoSpace);
    EXPECT_EQ(error.path(), "/out");
  }
  ConvertOptions options = to(CheckpointFormat::kDcp);
  options.dry_run = true;
  const ConvertReport report = run(source, options);
  EXPECT_GT(report.disk_bytes_needed, report.disk_bytes_free);
}

TEST_F(Convert, RefusesToOverwriteUnlessAsked) {
  for (const std::string path : {"/out", "/out.safetensors"}) {
    ConvertOptions options = to(CheckpointFormat::kSafetensors);
    run(one_tensor().open(), options, path);
    MemoryCheckpoint other;
    other.tensor("w", DType::kFloat32, Dims{1}, std::vector<float>{9});
    const auto source = other.open();
    EXPECT_EQ(refusal<Error>(source, options, path).code(), ErrorCode::kExists);
    EXPECT_THAT(floats(result(path), "w"), ElementsAre(1, 2, 3, 4));
    options.overwrite = true;
    run(source, options, path);
    EXPECT_THAT(floats(result(path), "w"), ElementsAre(9));
  }
}

TEST_F(Convert, ADryRunWritesNothingAndForetellsTheFiles) {
  const auto source = one_tensor().open();
  ConvertOptions options = to(CheckpointFormat::kDcp);
  options.dry_run = true;
  const ConvertReport plan = run(source, options);
  EXPECT_FALSE(storage_->stat("/out"));
  options.dry_run = false;
  run(source, options);
  ASSERT_THAT(plan.files, SizeIs(2));
  for (const ConvertReport::File& file : plan.files) {
    EXPECT_EQ(storage_->stat("/out/" + file.name)->size_bytes, file.size_bytes) << file.name;
  }
}

TEST_F(Convert, RefusesTensorsThatAreNotWhole) {
  const auto source = [](std::initializer_list<int64_t> starts) {
    MemoryCheckpoint memory;
    memory.catalog.add_file("w", 8);
    memory.catalog.add_tensor("w", DType::kFloat32, Dims{4});
    for (int64_t start : starts) {
      memory.catalog.add_chunk(Dims{start}, Dims{2}, {0, 8, 0, Location::kRowMajor});
    }
    memory.files.push_back(std::make_shared<MemorySource>(ByteVector(8), "w"));
    return memory.open();
  };
  const ConvertOptions options = to(CheckpointFormat::kDcp);
  EXPECT_EQ(refusal<FormatError>(source({0}), options).code(), ErrorCode::kHole);
  EXPECT_EQ(refusal<FormatError>(source({0, 1, 2}), options).code(), ErrorCode::kOverlap);
  EXPECT_EQ(refusal<FormatError>(source({0, 3}), options).code(), ErrorCode::kOutOfBounds);
}

TEST_F(Convert, NamesAMissingDataFileBeforeWriting) {
  const TestCheckpoint source("dcp/fsdp_2rank/ckpt");
  source.remove("__1_0.distcp");
  ConvertOptions options = to(CheckpointFormat::kDcp);
  const auto error = refusal<FormatError>(Checkpoint::open(source.where), options);
  EXPECT_EQ(error.code(), ErrorCode::kMissingFile);
  EXPECT_EQ(error.path(), source.path("__1_0.distcp"));
  EXPECT_NE(error.key(), "");
}

TEST_F(Convert, LeavesNothingBehindWhenCancelled) {
  Progress progress;
  progress.cancel = true;
  ConvertOptions options = to(CheckpointFormat::kDcp);
  options.progress = &progress;
  EXPECT_THAT(refusal<Error>(one_tensor().open(), options).what(), HasSubstr("cancelled"));
}

// All bytes of the files of a folder.
std::map<std::string, std::string> contents(Storage& storage, const std::string& folder) {
  std::map<std::string, std::string> all;
  for (const FileInfo& info : storage.list(folder)) {
    const auto file = storage.open_read(join_path(folder, info.name));
    std::string bytes(static_cast<size_t>(file->size()), '\0');
    file->read_at(0, std::as_writable_bytes(std::span(bytes)));
    all.emplace(info.name, std::move(bytes));
  }
  return all;
}

TEST_F(Convert, SharesTogetherWriteWhatOneConversionDoes) {
  MemoryCheckpoint memory;
  for (int i = 0; i < 7; ++i) {
    const auto value = static_cast<float>(i);
    memory.tensor("w" + std::to_string(i), DType::kFloat32, Dims{2}, std::vector<float>{value, -value});
  }
  ConvertOptions options = to(CheckpointFormat::kSafetensors);
  options.shard_size_bytes = 16;  // two tensors a file
  const auto source = memory.open();
  run(source, options, "/whole");
  const auto whole = contents(*storage_, "/whole");
  ASSERT_EQ(whole.size(), 5U);  // and the index

  for (const int64_t count : {1, 2, 3, 6}) {  // the last ones have no file where there are more than files
    SCOPED_TRACE(count);
    const std::string folder = "/shares-" + std::to_string(count);
    storage_->make_directory(folder);
    std::map<std::string, std::string> hashes;
    for (int64_t index = count - 1; index >= 0; --index) {
      const ConvertReport report =
          convert_part(source, {storage_, folder}, options, {index, count, /*hash_files=*/true});
      for (const auto& [name, hash] : report.hashes) {
        EXPECT_TRUE(hashes.emplace(name, hash).second) << name << " was written twice";
      }
    }
    EXPECT_EQ(contents(*storage_, folder), whole);
    for (const auto& [name, bytes] : whole) {
      Sha256 hash;
      hash.update(as_bytes(bytes));
      EXPECT_EQ(hashes[name], to_hex(hash.finish())) << name;
    }
  }
}

}  // namespace
}  // namespace milepost
