#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "format/json_text.h"
#include "milepost/base/error.h"
#include "milepost/format/safetensors.h"

namespace milepost::safetensors {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string with_length(std::string_view json, std::string_view data = {}) {
  const uint64_t length = json.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + std::string(json) + std::string(data);
}

Header read(std::string_view bytes) { return read_header(MemorySource(as_bytes(bytes), "m.safetensors")); }

// The header `json` with `data_bytes` bytes behind it.
Header read(std::string_view json, size_t data_bytes) {
  return read(with_length(json, std::string(data_bytes, '\1')));
}

Header read_entry(std::string_view dtype, std::string_view shape, size_t data_bytes) {
  return read(R"({"w":{"dtype":")" + std::string(dtype) + R"(","shape":)" + std::string(shape) +
                  R"(,"data_offsets":[0,)" + std::to_string(data_bytes) + "]}}",
              data_bytes);
}

// The error that reading gives; fails when it gives none.
template <typename Read>
FormatError refusal(Read&& do_read) {
  try {
    do_read();
  } catch (const FormatError& error) {
    return error;
  }
  ADD_FAILURE() << "was read";
  return {ErrorCode::kIo, ""};
}
FormatError refusal(std::string_view json, size_t data_bytes) {
  return refusal([&] { read(json, data_bytes); });
}

std::string load(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::filesystem::path> files_in(const std::string& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(MILEPOST_TEST_DATA "/" + folder)) {
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path());
  }
  EXPECT_FALSE(files.empty());
  return files;
}

// As a file: not in memory, and it counts what is read.
class CountingSource final : public ByteSource {
 public:
  explicit CountingSource(std::string bytes, int64_t claimed_size = -1)
      : bytes_(std::move(bytes)),
        size_(claimed_size < 0 ? static_cast<int64_t>(bytes_.size()) : claimed_size) {}
  int64_t size() const override { return size_; }
  const std::string& name() const override { return name_; }
  void read_at(int64_t offset, MutableBytes dst) const override {
    ++reads;
    bytes_read += static_cast<int64_t>(dst.size());
    std::memcpy(dst.data(), bytes_.data() + offset, dst.size());
  }
  mutable int64_t reads = 0, bytes_read = 0;

 private:
  std::string bytes_, name_ = "counting";
  int64_t size_;
};

TEST(SafetensorsHeader, ReadsEntriesInOrderOfOffset) {
  const Header header = read(R"({"b":{"data_offsets":[4,16],"shape":[2,3],"dtype":"BF16"},)"
                             R"("__metadata__":{"format":"pt","é":"\u00e9\n"},)"
                             R"("a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}   )",
                             16);
  ASSERT_EQ(header.entries.size(), 2u);
  const Entry &a = header.entries[0], &b = header.entries[1];
  EXPECT_EQ(a.name, "a");
  EXPECT_EQ(a.dtype, DType::kFloat32);
  EXPECT_TRUE(a.shape.empty());
  EXPECT_EQ(a.offset, header.header_bytes);
  EXPECT_EQ(a.length, 4);
  EXPECT_EQ(b.dtype, DType::kBFloat16);
  EXPECT_THAT(b.shape, ElementsAre(2, 3));
  EXPECT_EQ(b.offset, header.header_bytes + 4);
  EXPECT_EQ(b.length, 12);
  EXPECT_EQ(header.metadata.at("format"), "pt");
  EXPECT_EQ(header.metadata.at("é"), "é\n");
  EXPECT_TRUE(header.warnings.empty());
}

TEST(SafetensorsHeader, KnowsEveryDTypeOfTheFormat) {
  const std::pair<const char*, size_t> dtypes[] = {
      {"BOOL", 8},    {"F4", 4},   {"F6_E2M3", 6},     {"F6_E3M2", 6},     {"U8", 8},   {"I8", 8},
      {"F8_E5M2", 8}, {"F16", 16}, {"F8_E4M3", 8},     {"F8_E8M0", 8},     {"I16", 16}, {"U16", 16},
      {"BF16", 16},   {"I32", 32}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"U32", 32}, {"F32", 32},
      {"C64", 64},    {"F64", 64}, {"I64", 64},        {"U64", 64},
  };
  std::set<DType> seen;
  for (const auto& [name, bits] : dtypes) {
    const Header header = read_entry(name, "[2,4]", bits);
    seen.insert(header.entries[0].dtype);
    EXPECT_EQ(dtype_info(header.entries[0].dtype).safetensors, name);
    EXPECT_EQ(refusal([&] { read_entry(name, "[2,4]", bits + 1); }).code(), ErrorCode::kBadFormat) << name;
  }
  EXPECT_EQ(seen.size(), std::size(dtypes));
}

TEST(SafetensorsHeader, HalvesTheLastDimensionOfFloat4) {
  EXPECT_THAT(read_entry("F4", "[3,6]", 9).entries[0].shape, ElementsAre(3, 3));
  EXPECT_THAT(read_entry("F4", "[3,0]", 0).entries[0].shape, ElementsAre(3, 0));
  for (const char* shape : {"[2,3]", "[0,3]", "[1]"}) {
    const FormatError error = refusal([&] { read_entry("F4", shape, 3); });
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_THAT(error.what(), HasSubstr(shape[3] == '3' ? ", 3]" : "[1]"));
  }
  EXPECT_EQ(refusal([] { read_entry("F4", "[]", 1); }).code(), ErrorCode::kUnsupported);
}

TEST(SafetensorsHeader, RefusesFloat6ThatEndsInsideAByte) {
  EXPECT_EQ(read_entry("F6_E2M3", "[4]", 3).entries[0].length, 3);
  EXPECT_EQ(refusal([] { read_entry("F6_E2M3", "[3]", 2); }).code(), ErrorCode::kBadFormat);
}

TEST(SafetensorsHeader, TakesEmptyTensorsAnywhereBetweenOthers) {
  const Header header = read(R"({"z":{"dtype":"U8","shape":[0,3],"data_offsets":[2,2]},)"
                             R"("a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                             R"("b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]},)"
                             R"("e":{"dtype":"U8","shape":[0],"data_offsets":[3,3]}})",
                             3);
  std::vector<std::string> names;
  for (const Entry& entry : header.entries) names.push_back(entry.name);
  EXPECT_THAT(names, ElementsAre("a", "z", "b", "e"));
  EXPECT_EQ(refusal(R"({"z":{"dtype":"U8","shape":[0],"data_offsets":[1,1]},)"
                    R"("a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})",
                    2)
                .code(),
            ErrorCode::kOverlap);
}

TEST(SafetensorsHeader, RefusesEveryBadHeaderLengthWithTheFileName) {
  for (const auto& path : files_in("bad/safetensors-header-length")) {
    const std::string bytes = load(path), name = path.filename().string();
    if (name.starts_with("good-")) {
      EXPECT_TRUE(read(bytes).warnings.empty()) << name;
    } else if (name == "leading-space.safetensors") {
      EXPECT_THAT(read(bytes).warnings, ElementsAre(HasSubstr("white space")));
    } else {
      EXPECT_THAT(refusal([&] { read(bytes); }).what(), HasSubstr("m.safetensors")) << name;
    }
  }
}

TEST(SafetensorsHeader, RefusesEveryBadOffsetWithTheTensorsName) {
  for (const auto& path : files_in("bad/safetensors-offsets")) {
    const std::string bytes = load(path), name = path.filename().string();
    if (name.starts_with("good-")) {
      EXPECT_FALSE(read(bytes).entries.empty()) << name;
      continue;
    }
    const FormatError error = refusal([&] { read(bytes); });
    ASSERT_FALSE(error.key().empty()) << name << ": " << error.what();
    EXPECT_THAT(bytes, HasSubstr('"' + error.key() + '"')) << name;
  }
}

TEST(SafetensorsHeader, SaysWhatIsWrongWithRanges) {
  const auto entry = [](std::string name, int begin, int end) {
    return '"' + name + R"(":{"dtype":"U8","shape":[)" + std::to_string(end - begin) +
           R"(],"data_offsets":[)" + std::to_string(begin) + "," + std::to_string(end) + "]}";
  };
  const auto both = [&](int a, int b, int c, int d) {
    return "{" + entry("x", a, b) + "," + entry("y", c, d) + "}";
  };
  EXPECT_EQ(refusal(both(0, 4, 3, 7), 7).code(), ErrorCode::kOverlap);
  EXPECT_EQ(refusal(both(0, 4, 5, 7), 7).code(), ErrorCode::kHole);
  EXPECT_EQ(refusal(both(1, 4, 4, 7), 7).code(), ErrorCode::kHole);
  EXPECT_EQ(refusal(both(0, 4, 4, 7), 8).code(), ErrorCode::kHole);
  EXPECT_EQ(refusal(both(0, 4, 4, 9), 8).code(), ErrorCode::kTruncated);
  EXPECT_EQ(refusal(both(0, 4, 4, 9), 8).key(), "y");
  EXPECT_EQ(refusal("{}", 1).code(), ErrorCode::kHole);
  EXPECT_EQ(read(both(4, 8, 0, 4), 8).entries[0].name, "y");
}

TEST(SafetensorsHeader, RefusesMembersOfTheWrongKind) {
  for (const char* json : {
           R"({"w":{"shape":[1],"data_offsets":[0,1]}})",
           R"({"w":{"dtype":"U8","data_offsets":[0,1]}})",
           R"({"w":{"dtype":"U8","shape":[1]}})",
           R"({"w":{"dtype":8,"shape":[1],"data_offsets":[0,1]}})",
           R"({"w":{"dtype":["U8"],"shape":[1],"data_offsets":[0,1]}})",
           R"({"w":{"dtype":"U8","shape":1,"data_offsets":[0,1]}})",
           R"({"w":{"dtype":"U8","shape":{"a":1},"data_offsets":[0,1]}})",
           R"({"w":{"dtype":"U8","shape":[[1]],"data_offsets":[0,1]}})",
           R"({"w":{"dtype":"U8","shape":["1"],"data_offsets":[0,1]}})",
           R"({"w":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}})",
           R"({"w":{"dtype":"U8","shape":[true],"data_offsets":[0,1]}})",
           R"({"w":{"dtype":"U8","shape":null,"data_offsets":[0,1]}})",
           R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[0]}})",
           R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1,1]}})",
           R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[-0,1]}})",
           R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1e0]}})",
           R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[0,18446744073709551616]}})",
           R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[0,9223372036854775808]}})",
           R"({"w":[]})",
           R"({"w":null})",
       }) {
    const FormatError error = refusal(json, 1);
    EXPECT_EQ(error.code(), ErrorCode::kBadFormat) << json;
    EXPECT_EQ(error.key(), "w") << json;
    EXPECT_EQ(error.path(), "m.safetensors") << json;
  }
  EXPECT_EQ(refusal(R"({"__metadata__":{"a":1}})", 0).key(), "__metadata__");
  EXPECT_EQ(refusal(R"({"__metadata__":{"a":{"b":"c"}}})", 0).key(), "__metadata__");
  EXPECT_EQ(refusal(R"({"__metadata__":[]})", 0).key(), "__metadata__");
  EXPECT_TRUE(read(R"({"__metadata__":null})", 0).metadata.empty());
}

TEST(SafetensorsHeader, RefusesRepeatedNames) {
  const std::string w = R"("w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  EXPECT_EQ(refusal("{" + w + "," + w + "}", 1).code(), ErrorCode::kDuplicate);
  EXPECT_EQ(refusal("{" + w + "," + w + "}", 1).key(), "w");
  EXPECT_EQ(refusal(R"({"w":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1).code(),
            ErrorCode::kDuplicate);
  EXPECT_EQ(refusal(R"({"__metadata__":{"a":"1","a":"2"}})", 0).code(), ErrorCode::kDuplicate);
  EXPECT_EQ(refusal(R"({"__metadata__":{},"__metadata__":{}})", 0).code(), ErrorCode::kDuplicate);
  // The same name behind another spelling.
  EXPECT_EQ(refusal("{" + w + R"(,"\u0077":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1).code(),
            ErrorCode::kDuplicate);
}

TEST(SafetensorsHeader, RefusesShapesThatOverflowEvenBehindAZero) {
  const char* kHuge = "[4611686018427387904,4]";
  EXPECT_EQ(refusal([&] { read_entry("U8", kHuge, 0); }).code(), ErrorCode::kTooLarge);
  EXPECT_EQ(refusal([] { read_entry("U8", "[0,4611686018427387904,4]", 0); }).code(), ErrorCode::kTooLarge);
  EXPECT_EQ(refusal([] { read_entry("U8", "[4611686018427387904,0]", 0); }).code(), ErrorCode::kTooLarge);
  std::string deep = "[1";
  for (int i = 0; i < 64; ++i) deep += ",1";
  EXPECT_EQ(refusal([&] { read_entry("U8", deep + "]", 1); }).code(), ErrorCode::kBadFormat);
}

TEST(SafetensorsHeader, RefusesWhatIsNotOneJsonObject) {
  EXPECT_EQ(refusal("\xef\xbb\xbf{}", 0).code(), ErrorCode::kBadFormat);
  EXPECT_EQ(refusal(std::string_view("{}\0", 3), 0).code(), ErrorCode::kBadFormat);
  EXPECT_EQ(refusal(std::string_view("{}\0{", 4), 0).code(), ErrorCode::kBadFormat);
  EXPECT_EQ(refusal("{} {}", 0).code(), ErrorCode::kBadFormat);
  EXPECT_EQ(refusal(R"({"a":})", 0).offset(), 8 + 5);
  EXPECT_EQ(refusal("{\"\xed\xa0\x80\":{}}", 0).code(), ErrorCode::kBadFormat);
  EXPECT_EQ(refusal(R"({"\ud800":{}})", 0).code(), ErrorCode::kBadFormat);
  EXPECT_TRUE(read("{}\n\t ", 0).entries.empty());
}

TEST(SafetensorsHeader, SurvivesAMillionOpenBrackets) {
  const std::string deep(1'000'000, '[');
  const std::string json = R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":)";
  EXPECT_EQ(refusal(json + deep, 1).code(), ErrorCode::kBadFormat);
  EXPECT_EQ(read(json + deep + std::string(deep.size(), ']') + "}}", 1).warnings.size(), 1u);
}

TEST(SafetensorsHeader, WarnsOfUnknownFields) {
  const Header header =
      read(R"({"w":{"dtype":"U8","x":{"shape":[9]},"shape":[1],"data_offsets":[0,1],"y":[]}})", 1);
  EXPECT_THAT(header.warnings, ElementsAre(HasSubstr("'x' of 'w'")));
  EXPECT_THAT(header.entries[0].shape, ElementsAre(1));
}

TEST(SafetensorsHeader, ReadsFilesInTwoReadsWithoutTheirData) {
  const CountingSource file(
      with_length(R"({"w":{"dtype":"U8","shape":[4000],"data_offsets":[0,4000]}})", std::string(4000, 'x')));
  const Header header = read_header(file);
  EXPECT_LE(file.reads, 2);
  EXPECT_EQ(file.bytes_read, header.header_bytes);
}

TEST(SafetensorsHeader, AllocatesNothingForALengthThatTheFileDoesNotHave) {
  const uint64_t claimed = 99'999'999;
  const CountingSource file(std::string(reinterpret_cast<const char*>(&claimed), 8) + "{}");
  EXPECT_EQ(refusal([&] { read_header(file); }).code(), ErrorCode::kTruncated);
  EXPECT_EQ(file.bytes_read, 8);
}

TEST(SafetensorsHeader, ReadsEveryFixture) {
  for (const auto& path : files_in("dcp")) {
    const Header header = read(load(path));
    EXPECT_FALSE(header.entries.empty()) << path;
    EXPECT_TRUE(header.warnings.empty()) << path;
    for (const Entry& entry : header.entries) {
      if (header.metadata.contains("DCP_SHARDING_INFO")) {
        EXPECT_EQ(entry.saved_offsets.size(), entry.shape.size()) << path << entry.name;
      } else {
        EXPECT_TRUE(entry.saved_offsets.empty()) << path << entry.name;
      }
    }
  }
}

// A 2 x 3 tensor named w whose sharding information is `info`.
std::string sharded(const std::string& info) {
  std::string quoted;
  append_json_string(&quoted, info, JsonEscapes::kFewest);
  return R"({"__metadata__":{"DCP_SHARDING_INFO":)" + quoted +
         R"(},"w":{"dtype":"U8","shape":[2,3],"data_offsets":[0,6]}})";
}

TEST(SafetensorsShardingInfo, GivesEachEntryItsPlace) {
  const Header header = read(sharded(R"({"w": {"saved_offsets": [4, 0], "more": [1]}})"), 6);
  EXPECT_THAT(header.entries[0].saved_offsets, ElementsAre(4, 0));
  EXPECT_TRUE(header.warnings.empty());
  EXPECT_TRUE(read(sharded("{}"), 6).entries[0].saved_offsets.empty());
  EXPECT_TRUE(read(sharded(R"({"w": {}})"), 6).entries[0].saved_offsets.empty());
}

TEST(SafetensorsShardingInfo, WarnsOfTensorsThatTheFileDoesNotHold) {
  const Header header = read(sharded(R"({"v": {"saved_offsets": [1]}, "w": {"saved_offsets": [4, 0]}})"), 6);
  EXPECT_THAT(header.warnings, ElementsAre(HasSubstr("'v'")));
  EXPECT_THAT(header.entries[0].saved_offsets, ElementsAre(4, 0));
}

TEST(SafetensorsShardingInfo, RefusesWhatCannotBeTrue) {
  for (const char* info : {
           R"({"w": {"saved_offsets": [4]}})",
           R"({"w": {"saved_offsets": [4, 0, 0]}})",
           R"({"w": {"saved_offsets": []}})",
           R"({"w": {"saved_offsets": [-1, 0]}})",
           R"({"w": {"saved_offsets": [1.5, 0]}})",
           R"({"w": {"saved_offsets": [[1], 0]}})",
           R"({"w": {"saved_offsets": [9223372036854775807, 0]}})",
           R"({"w": {"saved_offsets": 4}})",
           R"({"w": {"saved_offsets": [0, 0], "saved_offsets": [0, 0]}})",
           R"({"w": {"saved_offsets": [0, 0]}, "w": {"saved_offsets": [0, 0]}})",
           R"({"w": [4, 0]})",
       }) {
    const FormatError error = refusal(sharded(info), 6);
    EXPECT_EQ(error.key(), "w") << info;
    EXPECT_THAT(error.what(), HasSubstr("DCP_SHARDING_INFO")) << info;
  }
  EXPECT_EQ(refusal(sharded("not json"), 6).key(), "__metadata__");
  EXPECT_EQ(refusal(sharded("[]"), 6).key(), "__metadata__");
}

}  // namespace
}  // namespace milepost::safetensors
