// Pickles that Python and torch wrote (tools/make_pickle_golden.py): what they read as, and that they are
// written back byte for byte.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "format/pickle_text.h"
#include "milepost/base/error.h"
#include "milepost/format/pickle.h"

namespace milepost::pickle {
namespace {

std::vector<std::vector<std::string>> rows(const std::string& file) {
  std::ifstream in(std::string(MILEPOST_TEST_DATA) + "/pickle/" + file);
  std::vector<std::vector<std::string>> result;
  for (std::string line; std::getline(in, line);) {
    std::vector<std::string> fields(1);
    for (const char c : line) {
      if (c == '\t') {
        fields.emplace_back();
      } else {
        fields.back().push_back(c);
      }
    }
    result.push_back(std::move(fields));
  }
  return result;
}

std::string unhex(std::string_view hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16)));
  }
  return bytes;
}

std::string encode(const Value& value) {
  VectorSink sink;
  write(value, sink);
  return std::string(as_text(sink.data));
}

// Everything above U+007E as \u escapes, as json.dumps writes by default.
std::string ascii(std::string_view json) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  const auto escape = [&](uint32_t unit) {
    out += "\\u";
    for (int shift = 12; shift >= 0; shift -= 4) out.push_back(kHex[unit >> shift & 15]);
  };
  for (size_t i = 0; i < json.size();) {
    const uint32_t c = next_code_point(json, &i);
    if (c < 0x7f) {
      out.push_back(static_cast<char>(c));
    } else if (c < 0x10000) {
      escape(c);
    } else {
      escape(0xd800 + ((c - 0x10000) >> 10));
      escape(0xdc00 + ((c - 0x10000) & 0x3ff));
    }
  }
  return out;
}

Document read_text(std::string_view pickle, Profile profile = Profile::kTorchSave) {
  Options options;
  options.profile = profile;
  return read(as_bytes(pickle), options, "test");
}

TEST(PickleGolden, EveryProtocolReadsAsPythonShowsIt) {
  std::map<std::string, std::string> json;
  for (const auto& row : rows("golden.tsv")) {
    const std::string name = row[0] + " protocol " + row[1];
    if (!row[3].empty()) json[row[0]] = row[3];
    const std::string pickle = unhex(row[2]);
    const Document document = read_text(pickle, Profile::kPlain);
    EXPECT_EQ(document.bytes_read(), static_cast<int64_t>(pickle.size())) << name;
    EXPECT_EQ(ascii(to_json(document.root())), json[row[0]]) << name;
  }
  EXPECT_GE(json.size(), 15u);
}

TEST(PickleGolden, EveryValueSurvivesEncoding) {
  int exact = 0;
  for (const auto& row : rows("golden.tsv")) {
    const std::string pickle = unhex(row[2]);
    const Document document = read_text(pickle);
    const std::string written = encode(document.root());
    EXPECT_EQ(to_json(read_text(written).root()), to_json(document.root()))
        << row[0] << " protocol " << row[1];
    if (row[1] != "2") continue;
    EXPECT_TRUE(written == pickle) << row[0];
    ++exact;
  }
  EXPECT_GE(exact, 15);
}

TEST(PickleGolden, TorchPicklesAreWrittenBackByteForByte) {
  int count = 0;
  for (const auto& row : rows("torch.tsv")) {
    const std::string pickle = unhex(row[1]);
    EXPECT_TRUE(encode(read_text(pickle).root()) == pickle) << row[0] << " " << row[1];
    ++count;
  }
  EXPECT_GE(count, 50);
}

TEST(PickleGolden, MetadataReadsTheSameFromEveryProtocol) {
  std::map<std::string, std::string> json;
  int count = 0;
  for (const auto& row : rows("metadata.tsv")) {
    const std::string shown = to_json(read_text(unhex(row[2]), Profile::kDcpMetadata).root());
    EXPECT_EQ(json.try_emplace(row[0], shown).first->second, shown) << row[0] << " protocol " << row[1];
    EXPECT_THAT(shown, testing::HasSubstr("torch.distributed.checkpoint.metadata Metadata"));
    ++count;
  }
  EXPECT_GE(count, 12);
}

TEST(PickleGolden, ACopyIsWrittenLikeItsOriginal) {
  for (const char* file : {"golden.tsv", "torch.tsv"}) {
    for (const auto& row : rows(file)) {
      const Document document = read_text(unhex(row.size() == 2 ? row[1] : row[2]));
      Builder builder;
      const Value* copy = builder.copy(document.root());
      EXPECT_EQ(encode(builder.finish(copy).root()), encode(document.root())) << row[0];
    }
  }
}

// No byte of a pickle can be missing, and none can make the reader misbehave.
TEST(PickleGolden, EveryPrefixIsRefused) {
  for (const auto& row : rows("golden.tsv")) {
    const std::string pickle = unhex(row[2]);
    const size_t step = 1 + pickle.size() / 60;
    for (size_t size = 0; size < pickle.size(); size += step) {
      EXPECT_THROW(read_text(std::string_view(pickle).substr(0, size)), FormatError) << row[0] << " " << size;
    }
  }
}

}  // namespace
}  // namespace milepost::pickle
