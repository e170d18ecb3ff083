#include "milepost/engine/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "engine/test_checkpoints.h"
#include "milepost/format/dcp.h"
#include "milepost/format/manifest.h"

namespace milepost {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> texts(const VerifyReport& report) {
  std::vector<std::string> all;
  for (const Finding& finding : report.findings) {
    all.push_back(std::string(severity_name(finding.severity)) + " " + finding.text);
  }
  return all;
}

VerifyReport check(const TestCheckpoint& checkpoint, VerifyOptions options = {}) {
  return verify(checkpoint.where, options);
}

// Writes `.metadata` anew with what `change` makes of its catalog.
void rewrite_metadata(const TestCheckpoint& checkpoint, const std::function<void(Catalog&)>& change) {
  const auto file = checkpoint.where.storage->open_read(checkpoint.path(".metadata"));
  dcp::Metadata metadata = dcp::read_metadata(*file);
  change(metadata.catalog);
  VectorSink sink;
  dcp::write_metadata(metadata.catalog, {"checkpoint", ""}, sink);
  checkpoint.write(".metadata", as_text(sink.data));
}

class VerifySound : public ::testing::TestWithParam<const char*> {};

TEST_P(VerifySound, FindsNothingWrongWithRealCheckpoints) {
  const TestCheckpoint checkpoint(std::string("dcp/") + GetParam());
  const VerifyReport report = check(checkpoint);
  EXPECT_THAT(texts(report), ElementsAre());
  EXPECT_TRUE(report.sound());
  EXPECT_GT(report.tensors, 0);
  EXPECT_GT(report.bytes_checked, 0);
}
INSTANTIATE_TEST_SUITE_P(
    Fixtures, VerifySound,
    ::testing::Values("plain_dtypes/ckpt", "nested/ckpt", "fsdp_4rank/ckpt", "mesh2d_2x2/ckpt", "ep_2x2/ckpt",
                      "threads2/ckpt", "file_per_item/ckpt", "old_style/ckpt", "titan_dsv3_fsdp2/ckpt/step-7",
                      "rank_local/ckpt", "hf_single/ckpt", "hf_sharded/ckpt",
                      "hf_dcp_distributed_mapped/ckpt", "hf_dcp_consolidated/ckpt", "hf_fp8/ckpt"));

TEST(Verify, ThrowsOnlyWhereThereIsNoCheckpoint) {
  const TestCheckpoint empty;
  EXPECT_THROW(check(empty), StorageError);
  EXPECT_THROW(verify(StorageLocation{empty.where.storage, "/absent"}), StorageError);
  EXPECT_THROW(verify("s3://bucket/key"), ValueError);
}

TEST(Verify, NamesAMissingFileItsRankAndTheRowsItHeld) {
  const TestCheckpoint checkpoint("bad/data-file-missing/ckpt");
  EXPECT_THAT(texts(check(checkpoint)), ElementsAre(AllOf(HasSubstr("error __1_0.distcp"),
                                                          HasSubstr("rank 1"), HasSubstr("'w' rows 2:4"))));
}

TEST(Verify, FindsAFlippedBitByItsCrcUnlessOnlyStructureIsChecked) {
  const TestCheckpoint checkpoint("dcp/plain_dtypes/ckpt");
  const auto opened = Checkpoint::open(checkpoint.where);
  const Catalog& catalog = opened->catalog();
  const int64_t tensor = *catalog.find_tensor("big.vec");
  const Location location =
      catalog.chunk_location(catalog.tensors()[static_cast<size_t>(tensor)].first_chunk);
  checkpoint.flip(catalog.files()[location.file].path, location.offset + location.length / 2);
  VerifyOptions structure;
  structure.payloads = false;
  EXPECT_TRUE(check(checkpoint, structure).sound());
  EXPECT_EQ(check(checkpoint, structure).bytes_checked, 0);
  const VerifyReport report = check(checkpoint);
  ASSERT_EQ(report.num_errors, 1);
  EXPECT_EQ(report.findings[0].code, ErrorCode::kChecksum);
  EXPECT_EQ(report.findings[0].key, "big.vec");
  EXPECT_GT(report.findings[0].offset, location.offset);
}

TEST(Verify, ReportsAllFaultsAtOnceInOneOrder) {
  const TestCheckpoint checkpoint("dcp/fsdp_4rank/ckpt");
  checkpoint.remove("__3_0.distcp");
  const std::string cut = checkpoint.read("__1_0.distcp");
  checkpoint.write("__1_0.distcp", cut.substr(0, cut.size() - 100));
  checkpoint.write("__9_0.distcp", "left by another save");
  checkpoint.write("__8_0.distcp", "");
  checkpoint.write("__2.metadata.tmp", "");
  VerifyOptions one, many;
  one.num_threads = 1;
  many.num_threads = 8;
  const std::vector<std::string> found = texts(check(checkpoint, one));
  EXPECT_EQ(found, texts(check(checkpoint, many)));
  EXPECT_THAT(found, Contains(AllOf(HasSubstr("error __1_0.distcp"), HasSubstr("leave the file"))));
  EXPECT_THAT(found, Contains(AllOf(HasSubstr("error __3_0.distcp"), HasSubstr("missing"))));
  EXPECT_THAT(found, Contains(AllOf(HasSubstr("warning __9_0.distcp"), HasSubstr("stale"))));
  EXPECT_THAT(found, Contains(AllOf(HasSubstr("warning __2.metadata.tmp"), HasSubstr("stale"))));
  EXPECT_THAT(found, Not(Contains(HasSubstr("__8_0"))));
}

TEST(Verify, KeepsNoMoreFindingsThanAskedButCountsAll) {
  const TestCheckpoint checkpoint("dcp/fsdp_4rank/ckpt");
  for (const char* file : {"__0_0.distcp", "__1_0.distcp", "__2_0.distcp"}) checkpoint.remove(file);
  VerifyOptions options;
  options.max_findings = 1;
  const VerifyReport report = check(checkpoint, options);
  EXPECT_EQ(report.num_errors, 3);
  EXPECT_EQ(report.findings.size(), 1u);
}

TEST(Verify, FindsBytesThatTwoEntriesClaim) {
  const TestCheckpoint checkpoint("dcp/fsdp_2rank/ckpt");
  std::string first, second;
  rewrite_metadata(checkpoint, [&](Catalog& catalog) {
    const Catalog::Tensor &a = catalog.tensors()[0], &b = catalog.tensors()[1];
    first = a.name;
    second = b.name;
    catalog.set_chunk_location(b.first_chunk, catalog.chunk_location(a.first_chunk));
  });
  const VerifyReport report = check(checkpoint);
  EXPECT_THAT(texts(report),
              Contains(AllOf(HasSubstr(first), HasSubstr(second), HasSubstr("are also those of"))));
  EXPECT_FALSE(report.sound());
}

TEST(Verify, FindsItemsThatAreNotWhatTheIndexSays) {
  const TestCheckpoint checkpoint("dcp/plain_dtypes/ckpt");
  rewrite_metadata(checkpoint, [](Catalog& catalog) {
    const int64_t a = catalog.tensors()[static_cast<size_t>(*catalog.find_tensor("dt.float32"))].first_chunk;
    const int64_t b = catalog.tensors()[static_cast<size_t>(*catalog.find_tensor("dt.int64"))].first_chunk;
    const Location at_a = catalog.chunk_location(a);
    catalog.set_chunk_location(a, catalog.chunk_location(b));
    catalog.set_chunk_location(b, at_a);
  });
  const VerifyReport report = check(checkpoint);
  EXPECT_EQ(report.num_errors, 2);
  for (const Finding& finding : report.findings)
    EXPECT_EQ(finding.code, ErrorCode::kShapeMismatch) << finding.text;
}

TEST(Verify, FindsRowsThatNoChunkCovers) {
  const TestCheckpoint checkpoint("dcp/fsdp_2rank/ckpt");
  const auto opened = Checkpoint::open(checkpoint.where);
  const Catalog& whole = opened->catalog();
  std::string cut;
  Catalog less;
  for (const Catalog::File& file : whole.files()) less.add_file(file.path, file.size_bytes);
  for (const Catalog::Tensor& tensor : whole.tensors()) {
    less.add_tensor(tensor.name, tensor.dtype, tensor.shape);
    int64_t kept = tensor.num_chunks;
    if (cut.empty() && kept > 1) {
      cut = tensor.name;
      --kept;
    }
    for (int64_t chunk = tensor.first_chunk; chunk < tensor.first_chunk + kept; ++chunk) {
      const Box box = whole.chunk_box(tensor, chunk);
      less.add_chunk(box.offsets, box.sizes, whole.chunk_location(chunk));
    }
  }
  VectorSink sink;
  dcp::write_metadata(less, {"checkpoint", ""}, sink);
  checkpoint.write(".metadata", as_text(sink.data));
  const VerifyReport report = check(checkpoint);
  ASSERT_FALSE(report.sound());
  EXPECT_EQ(report.findings[0].code, ErrorCode::kHole);
  EXPECT_EQ(report.findings[0].key, cut);
}

TEST(Verify, WarnsOfBytesThatNothingRefersTo) {
  const TestCheckpoint checkpoint("dcp/fsdp_2rank/ckpt");
  checkpoint.write("__0_0.distcp", checkpoint.read("__0_0.distcp") + std::string(1000, 'x'));
  checkpoint.write("__1_0.distcp", checkpoint.read("__1_0.distcp") + std::string(8, 'x'));
  const VerifyReport report = check(checkpoint);
  EXPECT_TRUE(report.sound());
  EXPECT_THAT(texts(report), ElementsAre(AllOf(HasSubstr("warning __0_0.distcp"), HasSubstr("1000 bytes")),
                                         AllOf(HasSubstr("note __1_0.distcp"), HasSubstr("8 bytes"))));
}

TEST(Verify, SaysThatASaveDidNotFinish) {
  const TestCheckpoint checkpoint("dcp/fsdp_2rank/ckpt");
  checkpoint.remove(".metadata");
  EXPECT_THAT(texts(check(checkpoint)),
              ElementsAre(AllOf(HasSubstr("incomplete"), HasSubstr("__0_0.distcp"))));
  checkpoint.write(".metadata.tmp", "");
  EXPECT_THAT(texts(check(checkpoint)), ElementsAre(HasSubstr(".metadata.tmp")));
}

TEST(Verify, CallsUnreadableMetadataAFindingNotAnException) {
  for (const char* variant :
       {"empty", "half", "garbage", "one-byte-off", "wrong-type", "missing-storage", "tmp-only"}) {
    const TestCheckpoint checkpoint(std::string("bad/metadata-damaged/") + variant);
    const VerifyReport report = check(checkpoint);
    EXPECT_EQ(report.num_errors, 1) << variant;
    EXPECT_THAT(texts(report), ElementsAre(HasSubstr(".metadata"))) << variant;
  }
}

TEST(Verify, WarnsOfAnEntryThatIsRefused) {
  const TestCheckpoint checkpoint("bad/bytes-entry-pickle-callable/ckpt");
  const VerifyReport report = check(checkpoint);
  EXPECT_TRUE(report.sound());
  EXPECT_THAT(texts(report),
              ElementsAre(AllOf(HasSubstr("warning"), HasSubstr("'train_state.step'"), HasSubstr("open"))));
}

TEST(Verify, CallsMetadataOfUnknownClassesUnreadable) {
  const TestCheckpoint checkpoint("dcp/plain_dtypes/ckpt");
  std::string metadata = checkpoint.read(".metadata");
  const size_t name = metadata.find("ChunkStorageMetadata");
  ASSERT_NE(name, std::string::npos);
  metadata[name] = 'X';
  checkpoint.write(".metadata", metadata);
  const VerifyReport report = check(checkpoint);
  EXPECT_FALSE(report.sound());
  EXPECT_THAT(texts(report), ElementsAre(AllOf(HasSubstr("error"), HasSubstr("XhunkStorageMetadata"))));
}

TEST(Verify, NotesWhereNoCrcWasTaken) {
  const TestCheckpoint folder("dcp/torch_save_files");
  const VerifyReport report = verify(StorageLocation{folder.where.storage, folder.path("direct_nocrc.pt")});
  EXPECT_TRUE(report.sound());
  EXPECT_THAT(texts(report), ElementsAre(AllOf(HasSubstr("note"), HasSubstr("8 of 8 records"))));
}

TEST(Verify, ChecksTorchSaveFiles) {
  const TestCheckpoint folder("dcp/torch_save_files");
  const StorageLocation file{folder.where.storage, folder.path("direct.pt")};
  EXPECT_THAT(texts(verify(file)), ElementsAre());
  const std::string whole = folder.read("direct.pt");
  folder.write("direct.pt", whole.substr(0, whole.size() / 2));
  EXPECT_FALSE(verify(file).sound());
  folder.write("direct.pt", "no archive at all");
  EXPECT_FALSE(verify(file).sound());
  EXPECT_THAT(texts(verify(StorageLocation{folder.where.storage, folder.path("direct_legacy.pt")})),
              ElementsAre(HasSubstr("legacy")));
}

TEST(Verify, NamesEveryPathThatLeavesTheFolder) {
  const TestCheckpoint checkpoint("bad/hf-index-escape/model");
  const VerifyReport report = check(checkpoint);
  EXPECT_EQ(report.num_errors, 3);
  for (const Finding& finding : report.findings) EXPECT_EQ(finding.code, ErrorCode::kPathEscape);
  EXPECT_THAT(texts(report), ElementsAre(HasSubstr("../outside.safetensors"), HasSubstr("/dev/zero"),
                                         HasSubstr("sub/inner")));
}

TEST(Verify, NamesAMissingShardAndItsTensors) {
  const TestCheckpoint checkpoint("bad/hf-index-missing-shard");
  EXPECT_THAT(texts(check(checkpoint)),
              ElementsAre(AllOf(HasSubstr("model-00002-of-00002.safetensors"), HasSubstr("'c', 'd'"))));
}

TEST(Verify, CallsAStrayFileWithOtherValuesAnError) {
  const TestCheckpoint checkpoint("bad/hf-index-and-single");
  EXPECT_THAT(texts(check(checkpoint)),
              ElementsAre(AllOf(HasSubstr("error model.safetensors"), HasSubstr("'w'"))));
  checkpoint.write("model.safetensors", one_vector("unrelated", {1}));
  EXPECT_THAT(texts(check(checkpoint)), ElementsAre(HasSubstr("warning model.safetensors: stale")));
}

TEST(Verify, FindsIndexAndShardsThatDisagree) {
  const TestCheckpoint checkpoint;
  checkpoint.write(
      "model.safetensors.index.json",
      R"({"metadata": {}, "weight_map": {"a": "one.safetensors", "b": "one.safetensors", "c": "two.safetensors"}})");
  checkpoint.write("one.safetensors", one_vector("a", {1}));
  checkpoint.write("two.safetensors", one_vector("c", {1, 2}) + "trailing");
  EXPECT_THAT(texts(check(checkpoint)),
              ElementsAre(AllOf(HasSubstr("error one.safetensors"), HasSubstr("'b'"), HasSubstr("does not")),
                          HasSubstr("error two.safetensors")));
}

TEST(Verify, FindsANameInTwoFiles) {
  const TestCheckpoint checkpoint;
  checkpoint.write("a.safetensors", one_vector("w", {1}));
  checkpoint.write("b.safetensors", one_vector("w", {2}));
  EXPECT_THAT(texts(check(checkpoint)), ElementsAre(AllOf(HasSubstr("error b.safetensors"), HasSubstr("'w'"),
                                                          HasSubstr("a.safetensors"))));
}

TEST(Verify, HonoursThePendingMarker) {
  const TestCheckpoint checkpoint("dcp/fsdp_2rank/ckpt");
  checkpoint.write(manifest::kPendingName, "pending\n");
  EXPECT_THAT(texts(check(checkpoint)), ElementsAre(HasSubstr("unfinished save")));
}

TEST(Verify, ChecksOneRankOfSeveral) {
  const TestCheckpoint checkpoint("dcp/rank_local/ckpt");
  checkpoint.remove("__0_0.distcp");
  VerifyOptions options;
  options.open.rank = 1;
  EXPECT_TRUE(check(checkpoint, options).sound());
  options.open.rank = 0;
  EXPECT_FALSE(check(checkpoint, options).sound());
  EXPECT_FALSE(check(checkpoint).sound());
  options.open.rank = 7;
  EXPECT_THROW(check(checkpoint, options), ValueError);
}

TEST(Verify, StopsWhenCancelled) {
  const TestCheckpoint checkpoint("dcp/fsdp_2rank/ckpt");
  Progress progress;
  progress.cancel = true;
  VerifyOptions options;
  options.progress = &progress;
  EXPECT_THROW(check(checkpoint, options), Error);
}

// Whatever single byte is damaged, verify neither crashes nor hangs.
TEST(Verify, SurvivesAnyDamagedByte) {
  const TestCheckpoint checkpoint("dcp/rank_local/ckpt");
  for (const char* name : {"__0.metadata", "__0_0.distcp"}) {
    const std::string whole = checkpoint.read(name);
    for (size_t at = 0; at < whole.size(); at += 3) {
      std::string damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ 0x55);
      checkpoint.write(name, damaged);
      VerifyOptions options;
      options.num_threads = 1;
      options.open.rank = 0;
      check(checkpoint, options);
    }
    checkpoint.write(name, whole);
  }
}

}  // namespace
}  // namespace milepost
