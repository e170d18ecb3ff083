// What Checkpoint::open refuses, and what it makes of folders that hold more or less than they should.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/test_checkpoints.h"
#include "milepost/base/error.h"
#include "milepost/engine/load.h"

namespace milepost {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <typename E>
E refusal(const StorageLocation& where, const OpenOptions& options = {}) {
  try {
    Checkpoint::open(where, options);
  } catch (const E& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was refused";
  throw std::logic_error("no error");
}

StorageLocation inside(const TestCheckpoint& folder, std::string_view name) {
  return {folder.where.storage, folder.path(name)};
}

// A safetensors file with one piece of a float32 vector.
std::string piece(const std::string& name, const std::string& offset, const std::vector<float>& values,
                  const std::string& dtype = "F32") {
  const size_t bytes = values.size() * 4;
  const std::string header = R"({"__metadata__":{"DCP_SHARDING_INFO":"{\")" + name +
                             R"(\":{\"saved_offsets\":[)" + offset + R"(]}}"},")" + name + R"(":{"dtype":")" +
                             dtype + R"(","shape":[)" + std::to_string(values.size()) +
                             R"(],"data_offsets":[0,)" + std::to_string(bytes) + "]}}";
  return safetensors_file(header, {reinterpret_cast<const char*>(values.data()), bytes});
}

std::vector<float> floats(const std::shared_ptr<const Checkpoint>& checkpoint, const std::string& name,
                          int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  load(checkpoint, {{name,
                     DType::kFloat32,
                     {count},
                     Box::whole(Dims{count}),
                     reinterpret_cast<std::byte*>(values.data()),
                     {}}});
  return values;
}

TEST(Open, SaysThatNothingIsThere) {
  const TestCheckpoint folder;
  const auto error = refusal<StorageError>(inside(folder, "absent"));
  EXPECT_EQ(error.code(), ErrorCode::kNotFound);
  EXPECT_EQ(error.path(), folder.path("absent"));
}

TEST(Open, NamesTheStepsOfAFolderOfCheckpoints) {
  const TestCheckpoint folder;
  folder.where.storage->make_directory(folder.path("step-10"));
  folder.where.storage->make_directory(folder.path("step-20"));
  const auto error = refusal<StorageError>(folder.where);
  EXPECT_EQ(error.code(), ErrorCode::kNotFound);
  EXPECT_THAT(error.hint(), HasSubstr("step-10, step-20"));
}

TEST(Open, TellsAnUnfinishedSaveFromAnEmptyFolder) {
  for (const char* name : {"__0_0.distcp", ".metadata.tmp"}) {
    const TestCheckpoint folder;
    folder.write(name, "x");
    const auto error = refusal<FormatError>(folder.where);
    EXPECT_EQ(error.code(), ErrorCode::kMissingFile);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("incomplete"), HasSubstr(name)));
  }
  EXPECT_EQ(refusal<StorageError>(TestCheckpoint().where).code(), ErrorCode::kNotFound);
}

TEST(Open, RefusesOneFileOfACheckpointThatIsAFolder) {
  const TestCheckpoint dcp("dcp/fsdp_2rank/ckpt"), hf("dcp/hf_sharded/ckpt");
  for (const StorageLocation& where :
       {inside(dcp, ".metadata"), inside(dcp, "__0_0.distcp"), inside(hf, "model.safetensors.index.json")}) {
    const auto error = refusal<ValueError>(where);
    EXPECT_EQ(error.path(), where.path);
    EXPECT_THAT(error.hint(), HasSubstr("give the folder"));
  }
}

TEST(Open, AsksWhichRankWhereEachWroteItsOwnMetadata) {
  const TestCheckpoint folder("dcp/rank_local/ckpt");
  EXPECT_THAT(refusal<ValueError>(folder.where).what(),
              AllOf(HasSubstr("__0.metadata, __1.metadata"), HasSubstr("--rank")));
  EXPECT_THAT(refusal<ValueError>(folder.where, {.rank = 2}).what(),
              AllOf(HasSubstr("rank 2"), HasSubstr("__0.metadata, __1.metadata")));
  EXPECT_FALSE(Checkpoint::open(folder.where, {.rank = 1})->catalog().tensors().empty());
  EXPECT_THAT(refusal<ValueError>(TestCheckpoint("dcp/fsdp_2rank/ckpt").where, {.rank = 0}).hint(),
              HasSubstr("leave the rank out"));
}

TEST(Open, RefusesTorchFilesOfTheOldLayout) {
  const TestCheckpoint folder("dcp/torch_save_files");
  EXPECT_EQ(refusal<FormatError>(inside(folder, "direct_legacy.pt")).code(), ErrorCode::kUnsupported);
  EXPECT_EQ(Checkpoint::open(inside(folder, "direct.pt"))->format(), CheckpointFormat::kTorchSave);
}

TEST(Open, RefusesRemoteSchemes) {
  for (const char* uri : {"s3://bucket/model", "gs://bucket/model", "hdfs://host/model"}) {
    try {
      Checkpoint::open(uri);
      FAIL();
    } catch (const ValueError& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    }
  }
}

TEST(Open, MissingDataFilesAreNoticedWhenTheyAreOpened) {
  const TestCheckpoint folder("dcp/fsdp_2rank/ckpt");
  folder.remove("__0_0.distcp");
  const auto checkpoint = Checkpoint::open(folder.where);
  for (uint32_t file = 0; file < checkpoint->catalog().files().size(); ++file) {
    if (checkpoint->catalog().files()[file].path != "__0_0.distcp") continue;
    try {
      checkpoint->open_file(file);
      FAIL();
    } catch (const FormatError& error) {
      EXPECT_EQ(error.code(), ErrorCode::kMissingFile);
      EXPECT_EQ(error.path(), folder.path("__0_0.distcp"));
    }
  }
}

TEST(OpenSafetensors, TheIndexDecidesOverStrayFiles) {
  const TestCheckpoint folder;
  folder.write("a.safetensors", one_vector("w", {1, 2}));
  folder.write("stray.safetensors", one_vector("w", {3}));
  folder.write("model.safetensors.index.json", R"({"weight_map":{"w":"a.safetensors"}})");
  const auto checkpoint = Checkpoint::open(folder.where);
  EXPECT_THAT(checkpoint->warnings(), ElementsAre(HasSubstr("stray.safetensors")));
  EXPECT_THAT(floats(checkpoint, "w", 2), ElementsAre(1, 2));
}

TEST(OpenSafetensors, LeavesOutWhatTheIndexDoesNotPlaceThere) {
  const TestCheckpoint folder;
  folder.write("a.safetensors", one_vector("w", {1}));
  folder.write("b.safetensors", one_vector("extra", {2}));
  folder.write("c.safetensors", one_vector("w", {3}));
  folder.write("d.safetensors", one_vector("v", {4}));
  const std::string index =
      R"({"weight_map":{"w":"a.safetensors","v":"d.safetensors","x":"b.safetensors","y":"c.safetensors"}})";
  folder.write("model.safetensors.index.json", index);
  const auto error = refusal<FormatError>(folder.where);
  EXPECT_EQ(error.code(), ErrorCode::kMissingKey);
  EXPECT_EQ(error.key(), "x");
  EXPECT_EQ(error.path(), folder.path("b.safetensors"));

  const std::string header = R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                             R"("extra":{"dtype":"U8","shape":[1],"data_offsets":[1,2]},)"
                             R"("v":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})";
  folder.write("a.safetensors", safetensors_file(header, "abc"));
  folder.write("model.safetensors.index.json", R"({"weight_map":{"w":"a.safetensors","v":"d.safetensors"}})");
  const auto checkpoint = Checkpoint::open(folder.where);
  EXPECT_THAT(checkpoint->catalog().names_in_order(), ElementsAre("w", "v"));
  EXPECT_THAT(checkpoint->warnings(), AllOf(Contains(HasSubstr("'extra' is not in the index")),
                                            Contains(HasSubstr("the index says it is in d.safetensors"))));
}

TEST(OpenSafetensors, NamesAMissingShardAndWhatItHolds) {
  const TestCheckpoint folder;
  folder.write("model.safetensors.index.json", R"({"weight_map":{"w":"a.safetensors","v":"a.safetensors"}})");
  const auto error = refusal<FormatError>(folder.where);
  EXPECT_EQ(error.code(), ErrorCode::kMissingFile);
  EXPECT_EQ(error.path(), folder.path("a.safetensors"));
  EXPECT_THAT(error.what(), HasSubstr("w, v"));
}

TEST(OpenSafetensors, RefusesANameInTwoFiles) {
  const TestCheckpoint folder;
  folder.write("a.safetensors", one_vector("w", {1}));
  folder.write("b.safetensors", one_vector("w", {1}));
  const auto error = refusal<FormatError>(folder.where);
  EXPECT_EQ(error.code(), ErrorCode::kDuplicate);
  EXPECT_EQ(error.key(), "w");
  EXPECT_EQ(error.path(), folder.path("b.safetensors"));
}

TEST(OpenSafetensors, JoinsPiecesByTheirSavedOffsets) {
  const TestCheckpoint folder;
  folder.write("a.safetensors", piece("w", "2", {3, 4, 5}));
  folder.write("b.safetensors", piece("w", "0", {1, 2}));
  const auto checkpoint = Checkpoint::open(folder.where);
  EXPECT_EQ(checkpoint->catalog().tensors()[0].shape, Dims{5});
  EXPECT_THAT(floats(checkpoint, "w", 5), ElementsAre(1, 2, 3, 4, 5));
}

TEST(OpenSafetensors, RefusesPiecesThatDoNotBelongTogether) {
  const TestCheckpoint types, whole, far;
  types.write("a.safetensors", piece("w", "0", {1, 2}));
  types.write("b.safetensors", piece("w", "2", {1, 2}, "I32"));
  const auto mismatch = refusal<FormatError>(types.where);
  EXPECT_EQ(mismatch.code(), ErrorCode::kShapeMismatch);
  EXPECT_EQ(mismatch.path(), types.path("b.safetensors"));
  whole.write("a.safetensors", piece("w", "0", {1, 2}));
  whole.write("b.safetensors", one_vector("w", {1, 2}));
  EXPECT_EQ(refusal<FormatError>(whole.where).code(), ErrorCode::kDuplicate);
  far.write("a.safetensors", piece("w", "9223372036854775807", {1, 2}));
  const auto error = refusal<FormatError>(far.where);
  EXPECT_EQ(error.code(), ErrorCode::kTooLarge);
  EXPECT_EQ(error.key(), "w");
  EXPECT_EQ(error.path(), far.path("a.safetensors"));
}

}  // namespace
}  // namespace milepost
