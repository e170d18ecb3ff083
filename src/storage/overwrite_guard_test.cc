#include "storage/overwrite_guard.h"

#include <gtest/gtest.h>

#include "storage/test_files.h"

namespace milepost {
namespace {

TEST(OverwriteGuard, KnowsTheFilesOfACheckpoint) {
  for (const char* name : {".metadata",
                           "__3.metadata",
                           ".metadata.tmp",
                           "__0_0.metadata.tmp",
                           "__0_0.distcp",
                           "model.safetensors",
                           "model-00001-of-00002.safetensors",
                           "model.safetensors.index.json",
                           "pytorch_model.bin.index.json",
                           "config.json",
                           "generation_config.json",
                           "tokenizer.json",
                           "tokenizer_config.json",
                           "tokenizer.model",
                           "vocab.json",
                           "vocab.txt",
                           "merges.txt",
                           "special_tokens_map.json",
                           "chat_template.jinja",
                           "chat_template.json",
                           "model.pt",
                           "model.pth",
                           "pytorch_model.bin",
                           "README.md",
                           "LICENSE",
                           "LICENSE.txt",
                           ".gitattributes",
                           "_checkpoint_hash_manifest.json",
                           "_checkpoint_hash_manifest.json.pending"}) {
    EXPECT_TRUE(is_checkpoint_file_name(name)) << name;
  }
}

TEST(OverwriteGuard, KnowsNoOtherFiles) {
  for (const char* name : {"", "metadata", "thesis.tex", "config.json.bak", "my_config.json", ".bashrc",
                           "distcp", "x.distcp2", "photo.jpg", "tokenizer.txt", "LICENCE", "index.json",
                           "data.json", ".metadata2", "_checkpoint_hash_manifest", "vocab"}) {
    EXPECT_FALSE(is_checkpoint_file_name(name)) << name;
  }
}

TEST(OverwriteGuard, KnowsACheckpointFileByItsFirstBytes) {
  const std::shared_ptr<Storage> storage = memory_storage();
  const auto is_checkpoint = [&](std::string_view content) {
    write_file(*storage, "/file", content);
    return is_checkpoint_file(*storage, "/file");
  };
  EXPECT_TRUE(is_checkpoint(""));
  EXPECT_TRUE(is_checkpoint("PK\3\4"));
  EXPECT_TRUE(is_checkpoint("\x80\2\x8a\nl"));
  EXPECT_TRUE(is_checkpoint(std::string_view("\x10\0\0\0\0\0\0\0{\"w\":", 13)));
  EXPECT_FALSE(is_checkpoint("PK"));
  EXPECT_FALSE(is_checkpoint("years of work"));
  EXPECT_FALSE(is_checkpoint("{\"years\": \"of work\"}"));
  EXPECT_FALSE(is_checkpoint(std::string_view("\x10\0\0\0\0\0\0\0", 8)));
}

class Stranger : public testing::Test {
 protected:
  Stranger() { storage_->make_directory("/folder"); }
  std::optional<std::string> find() { return find_stranger(*storage_, "/folder"); }
  const std::shared_ptr<Storage> storage_ = memory_storage();
};

TEST_F(Stranger, IsNotFoundInAnEmptyFolderOrACheckpoint) {
  EXPECT_EQ(find(), std::nullopt);
  write_file(*storage_, "/folder/.metadata", "");
  write_file(*storage_, "/folder/__0_0.distcp", "");
  storage_->make_directory("/folder/sharded");
  EXPECT_EQ(find(), std::nullopt);
  write_file(*storage_, "/folder/sharded/shard-00001.safetensors", "");
  EXPECT_EQ(find(), std::nullopt);
}

TEST_F(Stranger, IsTheFirstFileThatNoCheckpointHas) {
  write_file(*storage_, "/folder/.metadata", "");
  write_file(*storage_, "/folder/notes.txt", "");
  write_file(*storage_, "/folder/zebra.txt", "");
  EXPECT_EQ(find(), "notes.txt");
}

TEST_F(Stranger, IsAnyOtherFolder) {
  storage_->make_directory("/folder/step.safetensors");
  EXPECT_EQ(find(), "step.safetensors");
}

TEST_F(Stranger, IsWhatElseLiesInTheShardedFolder) {
  storage_->make_directory("/folder/sharded");
  write_file(*storage_, "/folder/sharded/config.json", "");
  EXPECT_EQ(find(), "sharded/config.json");
  storage_->remove_file("/folder/sharded/config.json");
  storage_->make_directory("/folder/sharded/a.safetensors");
  EXPECT_EQ(find(), "sharded/a.safetensors");
}

TEST_F(Stranger, IsAFileNamedSharded) {
  write_file(*storage_, "/folder/sharded", "");
  EXPECT_EQ(find(), "sharded");
}

}  // namespace
}  // namespace milepost
