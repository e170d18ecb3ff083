#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "format/dcp_metadata_compare.h"
#include "format/dcp_metadata_fast.h"
#include "format/dcp_test_files.h"
#include "format/dcp_test_pickle.h"
#include "milepost/base/error.h"
#include "milepost/format/dcp.h"

namespace milepost::dcp {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;
using namespace dcp::testing;

Metadata read(const std::string& bytes) {
  return read_metadata(MemorySource(as_bytes(bytes), "ckpt/.metadata"));
}

bool is_read_fast(const std::string& bytes) {
  return read_metadata_fast(MemorySource(as_bytes(bytes), "ckpt/.metadata")).has_value();
}

void expect_refused(const std::string& bytes, ErrorCode code, const std::string& words,
                    const std::string& key = "") {
  EXPECT_FALSE(is_read_fast(bytes));
  try {
    read(bytes);
    ADD_FAILURE() << "read in spite of: " << words;
  } catch (const FormatError& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_THAT(error.what(), HasSubstr(words));
    EXPECT_EQ(error.path(), "ckpt/.metadata");
    EXPECT_THAT(error.key(), StartsWith(key));
    EXPECT_FALSE(error.hint().empty());
  }
}

// A sound checkpoint of one tensor and one object, as a starting point.
const Pairs kEntries = {{text("w"), tensor(size({4, 2}), {chunk({0, 0}, {2, 2}), chunk({2, 0}, {2, 2})})},
                        {text("step"), object()}};
const Pairs kStorage = {{index("step"), info("__0_0.distcp", 0, 100)},
                        {index("w", {0, 0}, integer(0)), info("__0_0.distcp", 100, 200)},
                        {index("w", {2, 0}, integer(1)), info("__1_0.distcp", 0, 200)}};

Pairs with(Pairs pairs, size_t at, const std::string& key, const std::string& value) {
  pairs[at] = {key, value};
  return pairs;
}
Pairs without(Pairs pairs, size_t at) {
  pairs.erase(pairs.begin() + static_cast<ptrdiff_t>(at));
  return pairs;
}

TEST(DcpMetadata, BothReadersGiveTheSameForEveryFixture) {
  for (const auto& path : good_metadata_files()) {
    const std::string bytes = file_content(path);
    const MemorySource source(as_bytes(bytes), path.string());
    const std::optional<Metadata> fast = read_metadata_fast(source);
    ASSERT_TRUE(fast.has_value()) << path;
    EXPECT_EQ(metadata_difference(*fast, read_metadata_general(source)), "") << path;
    EXPECT_THAT(fast->warnings, IsEmpty()) << path;
  }
}

TEST(DcpMetadata, ReadsTensorsChunksAndLocations) {
  const Metadata metadata = read(file_content(test_data("dcp/fsdp_2rank/ckpt/.metadata")));
  const Catalog& catalog = metadata.catalog;
  ASSERT_EQ(catalog.tensors().size(), 12u);
  const Catalog::Tensor& tensor = catalog.tensors()[0];
  EXPECT_EQ(tensor.name, "w.even");
  EXPECT_EQ(tensor.dtype, DType::kFloat32);
  EXPECT_THAT(tensor.shape, ElementsAre(8, 6));
  ASSERT_EQ(tensor.num_chunks, 2);
  EXPECT_EQ(box_text(catalog.chunk_box(tensor, 0)), "[0:4, 0:6]");
  EXPECT_EQ(box_text(catalog.chunk_box(tensor, 1)), "[4:8, 0:6]");
  const Location& location = catalog.chunk_location(1);
  EXPECT_EQ(catalog.files()[location.file].path, "__1_0.distcp");
  EXPECT_EQ(location.layout, Location::kTorchItem);
  EXPECT_EQ(metadata.version, "1.0.0");
  EXPECT_EQ(metadata.checkpoint_id, "ckpt");
  EXPECT_EQ(metadata.save_id, "00000000-0000-4000-8000-000000000000");
  EXPECT_EQ(metadata.writer, "torch >= 2.9");
}

TEST(DcpMetadata, KeepsPathsAndTheOrderOfEntries) {
  const Catalog catalog = read(file_content(test_data("dcp/titan_dsv3_1rank/ckpt/step-3/.metadata"))).catalog;
  EXPECT_TRUE(catalog.has_paths());
  EXPECT_THAT(catalog.path("optimizer.state.norm.weight.exp_avg"),
              ElementsAre(PathElement("optimizer"), PathElement("state.norm.weight.exp_avg")));
  EXPECT_EQ(catalog.names_in_order().size(), 438u);
  EXPECT_EQ(catalog.names_in_order()[0], "train_state.step");
}

TEST(DcpMetadata, KeepsListPositionsInPaths) {
  const Metadata result = read(metadata_pickle(
      kEntries, kStorage, {{"planner_data", dict({{text("w"), tuple({text("layers"), integer(7)})}})}}));
  EXPECT_THAT(result.catalog.path("w"), ElementsAre(PathElement("layers"), PathElement(int64_t{7})));
  EXPECT_THAT(result.catalog.path("step"), ElementsAre(PathElement("step")));
}

TEST(DcpMetadata, ReadsNamesOfAnyKind) {
  const Catalog catalog = read(file_content(test_data("bad/metadata-odd-keys/ckpt/.metadata"))).catalog;
  for (const char* name : {"a/b/c", "../../escape", "with space", "line\nbreak", "", "x.y"}) {
    EXPECT_TRUE(catalog.find_tensor(name)) << name;
  }
}

TEST(DcpMetadata, ReadsOldFilesByDefaults) {
  const Metadata old = read(file_content(test_data("dcp/old_style/ckpt/.metadata")));
  EXPECT_EQ(old.writer, "torch 2.1 to 2.3");
  EXPECT_EQ(old.version, "");
  EXPECT_EQ(old.checkpoint_id, "");
  EXPECT_EQ(old.catalog.tensors().size(), 3u);

  const Metadata middle = read(metadata_pickle(
      kEntries, kStorage,
      {{"storage_meta", attributes(metadata_class("StorageMeta"), {{"save_id", text("s")}})}}));
  EXPECT_EQ(middle.writer, "torch 2.4 to 2.8");
  EXPECT_EQ(middle.save_id, "s");
}

TEST(DcpMetadata, ReadsPropertiesThatAreADict) {
  const std::string old =
      attributes(global("torch.distributed._shard.sharded_tensor.metadata", "TensorProperties"),
                 {{"dtype", global("torch", "bfloat16")}});
  const std::string bytes = metadata_pickle(
      with(kEntries, 0, text("w"), tensor(size({4, 2}), {chunk({0, 0}, {2, 2}), chunk({2, 0}, {2, 2})}, old)),
      kStorage);
  EXPECT_EQ(read(bytes).catalog.tensors()[0].dtype, DType::kBFloat16);
}

TEST(DcpMetadata, TakesAPlainTupleForASize) {
  const std::string shape = tuple({integer(4), integer(2)});
  const std::string bytes = metadata_pickle(
      with(kEntries, 0, text("w"), tensor(shape, {chunk({0, 0}, {2, 2}), chunk({2, 0}, {2, 2})})), kStorage);
  EXPECT_THAT(read(bytes).catalog.tensors()[0].shape, ElementsAre(4, 2));
}

TEST(DcpMetadata, FindsChunksByWrongOrMissingHints) {
  for (const std::string& hint : {kNone, integer(0), integer(1), integer(-1), integer(1000000)}) {
    Pairs storage = with(kStorage, 1, index("w", {0, 0}, hint), info("a", 1, 2));
    storage = with(storage, 2, index("w", {2, 0}, hint), info("b", 3, 4));
    const std::string bytes = metadata_pickle(kEntries, storage);
    EXPECT_TRUE(is_read_fast(bytes));
    const Catalog catalog = read(bytes).catalog;
    EXPECT_EQ(catalog.chunk_location(0).offset, 1);
    EXPECT_EQ(catalog.chunk_location(1).offset, 3);
  }
}

TEST(DcpMetadata, FindsChunksThatAreNotInOrder) {
  const std::vector<std::vector<int64_t>> offsets = {{0, 0}, {0, 2}, {4, 0}, {4, 2}, {2, 0}, {2, 2}};
  std::vector<std::string> chunks;
  Pairs storage;
  for (size_t i = 0; i < offsets.size(); ++i) {
    chunks.push_back(chunk(offsets[i], {2, 2}));
    storage.insert(storage.begin(), {index("w", offsets[i]), info("f", static_cast<int64_t>(i), 1)});
  }
  const std::string bytes = metadata_pickle({{text("w"), tensor(size({6, 4}), chunks)}}, storage);
  EXPECT_TRUE(is_read_fast(bytes));
  const Catalog catalog = read(bytes).catalog;
  for (int64_t i = 0; i < 6; ++i) EXPECT_EQ(catalog.chunk_location(i).offset, i);
}

TEST(DcpMetadata, LeavesEmptyChunksWithoutALocation) {
  const Pairs entries = {{text("w"), tensor(size({3, 4}), {chunk({0, 0}, {3, 4}), chunk({3, 0}, {0, 4})})},
                         {text("none"), tensor(size({0}), {})}};
  const std::string bytes = metadata_pickle(entries, {{index("w", {0, 0}), info("f", 0, 1)}});
  EXPECT_TRUE(is_read_fast(bytes));
  const Catalog catalog = read(bytes).catalog;
  EXPECT_EQ(catalog.chunk_location(1).file, Location::kNoFile);
  EXPECT_EQ(catalog.tensors()[1].num_chunks, 0);
}

TEST(DcpMetadata, AcceptsFilesInSubfolders) {
  const std::string bytes =
      metadata_pickle(kEntries, with(kStorage, 0, index("step"), info("a/b..c/.d", 0, 1)));
  EXPECT_EQ(read(bytes).catalog.files()[0].path, "a/b..c/.d");
}

TEST(DcpMetadata, WarnsOfAFutureVersion) {
  const Metadata metadata = read(file_content(test_data("bad/metadata-damaged/future-version/.metadata")));
  EXPECT_THAT(metadata.warnings, ElementsAre(HasSubstr("version '99.0.0'")));
}

TEST(DcpMetadata, WarnsOfWhatNothingRefersTo) {
  Pairs storage = kStorage;
  storage.emplace_back(index("gone"), info("f", 0, 1));
  storage.emplace_back(index("w", {1, 0}), info("f", 0, 1));
  const std::string bytes =
      metadata_pickle(kEntries, storage, {{"planner_data", dict({{text("left"), tuple({text("left")})}})}});
  const Metadata metadata = read(bytes);
  EXPECT_THAT(metadata.warnings,
              ElementsAre(HasSubstr("2 storage entries belong to no chunk or object, first 'gone'"),
                          HasSubstr("1 entries of planner_data name nothing")));
}

TEST(DcpMetadata, WarnsOfAnotherPlannersData) {
  const Metadata whole = read(metadata_pickle(kEntries, kStorage, {{"planner_data", text("mine")}}));
  EXPECT_THAT(whole.warnings, ElementsAre(HasSubstr("planner_data is a text")));
  EXPECT_FALSE(whole.catalog.has_paths());
  const Metadata entry = read(metadata_pickle(
      kEntries, kStorage, {{"planner_data", dict({{text("w"), "C\x01x"}, {text("step"), tuple({})}})}}));
  EXPECT_THAT(entry.warnings, ElementsAre(HasSubstr("2 entries of planner_data are not paths, first 'w'")));
}

TEST(DcpMetadata, RefusesEveryDamagedFixture) {
  const auto damaged = [](const std::string& name) {
    return file_content(test_data("bad/metadata-damaged/" + name + "/.metadata"));
  };
  expect_refused(damaged("empty"), ErrorCode::kTruncated, "at byte 0");
  expect_refused(damaged("half"), ErrorCode::kTruncated, "at byte 396");
  expect_refused(damaged("one-byte-off"), ErrorCode::kBadFormat, "at byte 11");
  expect_refused(damaged("garbage"), ErrorCode::kBadFormat, "at byte 0");
  expect_refused(damaged("wrong-type"), ErrorCode::kBadFormat,
                 "a list where a DCP Metadata object was expected");
  expect_refused(damaged("missing-storage"), ErrorCode::kMissingKey, "no entry for the chunk at [0, 0]", "w");
}

TEST(DcpMetadata, RefusesForeignClasses) {
  const std::string bytes =
      metadata_pickle(kEntries, kStorage, {{"planner_data", call(global("os", "system"), {text("x")})}});
  expect_refused(bytes, ErrorCode::kRefusedGlobal, "os.system");
}

TEST(DcpMetadata, RefusesPathsThatLeaveTheFolder) {
  using namespace std::string_view_literals;
  for (const auto path :
       {"/etc/x"sv, ".."sv, "../x"sv, "a/../../x"sv, ""sv, "a//b"sv, "a/"sv, "./a"sv, "a\0b"sv}) {
    expect_refused(metadata_pickle(kEntries, with(kStorage, 0, index("step"), info(path, 0, 1))),
                   ErrorCode::kPathEscape, "not a plain path inside the checkpoint's folder", "step");
  }
}

TEST(DcpMetadata, RefusesRangesThatAreNone) {
  constexpr int64_t kMax = INT64_MAX;
  expect_refused(metadata_pickle(kEntries, with(kStorage, 0, index("step"), info("f", -1, 1))),
                 ErrorCode::kOutOfBounds, "offset is -1", "step");
  expect_refused(metadata_pickle(kEntries, with(kStorage, 0, index("step"), info("f", 0, -5))),
                 ErrorCode::kOutOfBounds, "length is -5", "step");
  expect_refused(metadata_pickle(kEntries, with(kStorage, 0, index("step"), info("f", kMax, 1))),
                 ErrorCode::kOutOfBounds, "leave any file", "step");
}

TEST(DcpMetadata, RefusesChunksOutsideTheTensor) {
  const auto with_chunk = [](const std::string& odd) {
    return metadata_pickle({{text("w"), tensor(size({4, 2}), {odd})}}, {});
  };
  for (const std::string& odd :
       {chunk({3, 0}, {2, 2}), chunk({5, 0}, {0, 2}), chunk({0, INT64_MAX}, {1, INT64_MAX}), chunk({0}, {2}),
        chunk({0, 0, 0}, {1, 1, 1}), chunk({0, 0}, {2})}) {
    expect_refused(with_chunk(odd), ErrorCode::kOutOfBounds, "leaves the tensor of shape [4, 2]", "w");
  }
  expect_refused(with_chunk(chunk({-1, 0}, {1, 2})), ErrorCode::kOutOfBounds, "offsets holds -1", "w");
  expect_refused(with_chunk(chunk({0, 0}, {-1, 2})), ErrorCode::kOutOfBounds, "sizes holds -1", "w");
}

TEST(DcpMetadata, RefusesShapesBeyondAllSizes) {
  const auto with_shape = [](const std::vector<int64_t>& shape) {
    return metadata_pickle({{text("w"), tensor(size(shape), {})}}, {});
  };
  expect_refused(with_shape({INT64_MAX}), ErrorCode::kTooLarge, "is not a size in bytes", "w");
  expect_refused(with_shape({int64_t{1} << 32, int64_t{1} << 32}), ErrorCode::kTooLarge, "is not a size",
                 "w");
  expect_refused(with_shape({-1}), ErrorCode::kOutOfBounds, "size holds -1", "w");
  expect_refused(with_shape(std::vector<int64_t>(65, 1)), ErrorCode::kTooLarge, "65 dimensions", "w");
  EXPECT_EQ(read(with_shape(std::vector<int64_t>(64, 1))).catalog.tensors()[0].shape.size(), 64u);
}

TEST(DcpMetadata, RefusesDuplicates) {
  const Pairs twice = {{text("w"), tensor(size({4}), {chunk({0}, {2}), chunk({2}, {2}), chunk({0}, {1})})}};
  expect_refused(metadata_pickle(twice, {}), ErrorCode::kDuplicate, "two chunks have the offsets [0]", "w");
  Pairs storage = kStorage;
  storage.emplace_back(index("w", {2, 0}), info("f", 0, 1));
  expect_refused(metadata_pickle(kEntries, storage), ErrorCode::kDuplicate,
                 "two entries for the chunk at [2, 0]", "w");
  storage = kStorage;
  storage.emplace_back(index("step"), info("f", 0, 1));
  expect_refused(metadata_pickle(kEntries, storage), ErrorCode::kDuplicate, "two entries for this object",
                 "step");
}

TEST(DcpMetadata, RefusesEntriesWithoutStorage) {
  expect_refused(metadata_pickle(kEntries, without(kStorage, 0)), ErrorCode::kMissingKey,
                 "no entry for this object", "step");
  expect_refused(metadata_pickle(kEntries, without(kStorage, 2)), ErrorCode::kMissingKey,
                 "no entry for the chunk at [2, 0]", "w");
  // A tensor's entry must have an offset, an object's must not.
  expect_refused(metadata_pickle(kEntries, with(kStorage, 1, index("w"), info("f", 0, 1))),
                 ErrorCode::kMissingKey, "[0, 0]", "w");
  expect_refused(metadata_pickle(kEntries, with(kStorage, 0, index("step", {0}), info("f", 0, 1))),
                 ErrorCode::kMissingKey, "object", "step");
}

TEST(DcpMetadata, RefusesStreamExtensionsByName) {
  const std::string compressed = attributes(global("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
                                            {{"relative_path", text("f")},
                                             {"offset", integer(0)},
                                             {"length", integer(1)},
                                             {"transform_descriptors", list({text("stream.zstd/1")})}});
  expect_refused(metadata_pickle(kEntries, with(kStorage, 0, index("step"), compressed)),
                 ErrorCode::kUnsupported, "'stream.zstd/1'", "step");
}

// Protocol 4 with a memo, which the other tests do without: `items` refer to memo number 0, a long text.
std::string with_long_text(const std::string& planner_data, const std::string& storage_data) {
  const std::string name = text(std::string(200'000, 'n')) + "q" + le(0, 1);
  const std::string entries = "}" + name + object() + "s";
  return pickle(attributes(
      metadata_class("Metadata"),
      {{"state_dict_metadata", entries}, {"planner_data", planner_data}, {"storage_data", storage_data}}));
}

TEST(DcpMetadata, RefusesToCopyALongTextAgainAndAgain) {
  std::string references;
  for (int i = 0; i < 10'000; ++i) references += "h" + le(0, 1);
  const std::string same = attributes(metadata_class("MetadataIndex"), {{"fqn", "h" + le(0, 1)}});
  const std::string storage = dict({{same, info("f", 0, 1)}});
  EXPECT_EQ(read(with_long_text(kNone, storage)).catalog.objects().size(), 1u);
  expect_refused(with_long_text(dict({{"h" + le(0, 1), "(" + references + "t"}}), storage),
                 ErrorCode::kTooLarge, "more than 64 times its size");
  const std::string path_again =
      attributes(global("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
                 {{"relative_path", "h" + le(0, 1)}, {"offset", integer(0)}, {"length", integer(1)}});
  Pairs many;
  for (int i = 0; i < 1'000; ++i) many.emplace_back(index("stray" + std::to_string(i)), path_again);
  expect_refused(with_long_text(kNone, dict(many)), ErrorCode::kTooLarge, "more than 64 times its size",
                 "stray");
}

TEST(DcpMetadata, RefusesToRepeatATensorsChunksForManyNames) {
  std::vector<std::string> chunks;
  for (int64_t i = 0; i < 1000; ++i) chunks.push_back(chunk({i}, {0}));
  const std::string first = tensor(size({1000}), chunks) + "q" + le(0, 1);
  Pairs entries = {{text("w"), first}};
  for (int i = 0; i < 10'000; ++i) entries.emplace_back(text("w" + std::to_string(i)), "h" + le(0, 1));
  expect_refused(metadata_pickle(entries, {}), ErrorCode::kTooLarge, "more than 64 times its size", "w");
}

TEST(DcpMetadata, RefusesEntriesOfAnotherKind) {
  expect_refused(metadata_pickle(with(kEntries, 1, text("step"), integer(3)), kStorage),
                 ErrorCode::kBadFormat, "the entry is an integer", "step");
  expect_refused(metadata_pickle(with(kEntries, 1, text("step"), list({})), kStorage), ErrorCode::kBadFormat,
                 "the entry is a list", "step");
  expect_refused(
      metadata_pickle(with(kEntries, 0, text("w"), tensor(list({integer(4), integer(2)}), {})), kStorage),
      ErrorCode::kBadFormat, "size is a list where a torch.Size was expected", "w");
  expect_refused(
      metadata_pickle(with(kEntries, 0, text("w"), tensor(size({4, 2}), {}, properties("Size"))), kStorage),
      ErrorCode::kBadFormat, "the tensor's dtype", "w");
  expect_refused(pickle(attributes(metadata_class("Metadata"),
                                   {{"state_dict_metadata", dict({})}, {"storage_data", kNone}})),
                 ErrorCode::kBadFormat, "storage_data is None");
}

}  // namespace
}  // namespace milepost::dcp
