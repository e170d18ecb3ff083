#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "milepost/base/error.h"
#include "milepost/format/safetensors.h"

namespace milepost::safetensors {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

Index read(std::string_view text) { return read_index(MemorySource(as_bytes(text), "index")); }

FormatError refusal(std::string_view text) {
  try {
    read(text);
  } catch (const FormatError& error) {
    EXPECT_EQ(error.path(), "index");
    return error;
  }
  ADD_FAILURE() << "was read: " << text;
  return {ErrorCode::kIo, ""};
}

TEST(SafetensorsIndex, KeepsTheOrderOfTheFile) {
  const Index index = read(R"({"metadata": {"total_size": 12, "total_parameters": {"x": []}},
                               "weight_map": {"b": "m2.safetensors", "a": "m1.safetensors"}, "more": [{"a": 1}]})");
  EXPECT_THAT(index.weight_map, ElementsAre(Pair("b", "m2.safetensors"), Pair("a", "m1.safetensors")));
  EXPECT_EQ(index.total_size, 12);
}

TEST(SafetensorsIndex, ReadsIndexesWithoutATotal) {
  EXPECT_EQ(read(R"({"weight_map": {}})").total_size, -1);
  EXPECT_EQ(read(R"({"metadata": null, "weight_map": {}})").total_size, -1);
  EXPECT_EQ(read(R"({"metadata": {"total_size": 1.5}, "weight_map": {}})").total_size, -1);
}

TEST(SafetensorsIndex, RefusesFilesOutsideItsFolder) {
  for (const char* file :
       {"../x", "/abs", "sub/inner.safetensors", "", ".", "..", "a\\\\b", "a\\u0000b", "c:\\\\x"}) {
    const FormatError error = refusal(R"({"weight_map": {"ok": "m", "w": ")" + std::string(file) + "\"}}");
    EXPECT_EQ(error.code(), ErrorCode::kPathEscape) << file;
    EXPECT_EQ(error.key(), "w") << file;
  }
}

TEST(SafetensorsIndex, NamesTheFileThatEscapes) {
  std::ifstream file(MILEPOST_TEST_DATA "/bad/hf-index-escape/model/model.safetensors.index.json");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  EXPECT_THAT(refusal(text).what(), HasSubstr("outside.safetensors"));
}

TEST(SafetensorsIndex, RefusesRepeatedNames) {
  EXPECT_EQ(refusal(R"({"weight_map": {"a": "m", "b": "m", "a": "n"}})").key(), "a");
  EXPECT_EQ(refusal(R"({"weight_map": {}, "weight_map": {}})").code(), ErrorCode::kDuplicate);
  EXPECT_EQ(refusal(R"({"weight_map": {}, "metadata": {}, "metadata": {}})").code(), ErrorCode::kDuplicate);
}

TEST(SafetensorsIndex, RefusesWrongTypes) {
  for (const char* text :
       {"", "[]", "{}", "{", R"({"weight_map": []})", R"({"weight_map": null})",
        R"({"weight_map": {"a": 1}})", R"({"weight_map": {"a": ["m"]}})",
        R"({"weight_map": {"a": {"b": "m"}}})", R"({"weight_map": {"a": null}})",
        R"({"metadata": 1, "weight_map": {}})", R"({"metadata": {"total_size": "12"}, "weight_map": {}})"}) {
    EXPECT_EQ(refusal(text).code(), ErrorCode::kBadFormat) << text;
  }
}

TEST(SafetensorsIndex, ReadsTheFixtures) {
  int read_files = 0;
  for (const auto& item : std::filesystem::recursive_directory_iterator(MILEPOST_TEST_DATA "/dcp")) {
    if (item.path().filename() != kIndexName) continue;
    std::ifstream file(item.path(), std::ios::binary);
    const std::string text(std::istreambuf_iterator<char>(file), {});
    EXPECT_FALSE(read(text).weight_map.empty()) << item.path();
    ++read_files;
  }
  EXPECT_GE(read_files, 4);
}

TEST(SafetensorsIndex, WritesAsPythonDoesWithSortedKeys) {
  const Index index = {{{"b", "m-2"}, {"a\u00e9\U0001f600\"", "m-1"}}, 7};
  EXPECT_EQ(write_index(index),
            "{\n  \"metadata\": {\n    \"total_size\": 7\n  },\n  \"weight_map\": {\n"
            "    \"a\\u00e9\\ud83d\\ude00\\\"\": \"m-1\",\n    \"b\": \"m-2\"\n  }\n}");
  EXPECT_EQ(write_index({}), "{\n  \"metadata\": {},\n  \"weight_map\": {}\n}");
  EXPECT_THROW(write_index({{{"\xc0\x80", "m"}}, 0}), FormatError);
  const Index back = read(write_index(index));
  EXPECT_THAT(back.weight_map, ElementsAre(index.weight_map[1], index.weight_map[0]));
  EXPECT_EQ(back.total_size, 7);
}

std::vector<std::vector<int64_t>> shards_of(const std::vector<int64_t>& sizes, int64_t limit) {
  std::vector<OutTensor> tensors;
  for (size_t i = 0; i < sizes.size(); ++i) tensors.push_back({std::to_string(i), DType::kUInt8, {sizes[i]}});
  return assign_shards(tensors, limit);
}

// Expected values come from huggingface_hub's split_torch_state_dict_into_shards.
TEST(SafetensorsShards, CutWhereHuggingFaceHubCuts) {
  using Shards = std::vector<std::vector<int64_t>>;
  EXPECT_EQ(shards_of({6, 6, 2, 6, 2, 2}, 10), (Shards{{0}, {1, 2}, {3, 4, 5}}));
  EXPECT_EQ(shards_of({5, 5, 1}, 10), (Shards{{0, 1}, {2}}));
  EXPECT_EQ(shards_of({4, 11, 4, 12}, 10), (Shards{{1}, {3}, {0, 2}}));
  EXPECT_EQ(shards_of({10, 0, 0}, 10), (Shards{{0, 1, 2}}));
  EXPECT_EQ(shards_of({11}, 10), (Shards{{0}}));
}

TEST(SafetensorsShards, AreAtLeastOne) { EXPECT_EQ(shards_of({}, 1).size(), 1u); }

TEST(SafetensorsShards, RefuseALimitThatHoldsNothing) { EXPECT_THROW(shards_of({1}, 0), ValueError); }

TEST(SafetensorsShards, AreNamedAsHuggingFaceHubNamesThem) {
  EXPECT_EQ(shard_name(0, 1), "model.safetensors");
  EXPECT_EQ(shard_name(1, 5), "model-00002-of-00005.safetensors");
  EXPECT_EQ(shard_name(123455, 200000), "model-123456-of-200000.safetensors");
}

}  // namespace
}  // namespace milepost::safetensors
