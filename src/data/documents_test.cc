#include "milepost/data/documents.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include "data/test_data.h"
#include "milepost/base/error.h"

namespace milepost::data {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

std::string gzip(const std::string& content) {
  z_stream stream{};
  deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, content.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
  stream.avail_in = static_cast<uInt>(content.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string zstd(const std::string& content) {
  std::string out(ZSTD_compressBound(content.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), content.data(), content.size(), 3));
  return out;
}

class DocumentsTest : public testing::Test {
 protected:
  DocumentsTest() { storage->make_directory("/tmp"); }

  void write(const std::string& path, std::string_view content) { write_file(*storage, path, content); }

  std::unique_ptr<Documents> open(const std::vector<std::string>& files, const std::string& field = "text") {
    return std::make_unique<Documents>(storage, files,
                                       DocumentOptions{.text_field = field, .spool_folder = "/tmp"});
  }

  std::vector<std::string> texts(const std::vector<std::string>& files) {
    const auto documents = open(files);
    std::vector<std::string> out;
    for (int64_t i = 0; i < documents->size(); ++i) {
      out.emplace_back();
      documents->read(i, &out.back());
    }
    return out;
  }

  // The error of reading document `i` of a file with this content.
  std::string error_of(const std::string& content, int64_t i = 0, ErrorCode* code = nullptr) {
    write("/bad.jsonl", content);
    return error_of(
        [&] {
          std::string text;
          open({"/bad.jsonl"})->read(i, &text);
        },
        code);
  }
  std::string error_of(const std::function<void()>& f, ErrorCode* code = nullptr) {
    try {
      f();
    } catch (const Error& error) {
      if (code) *code = error.code();
      return error.what();
    }
    return "no error";
  }

  std::shared_ptr<Storage> storage = memory_storage();
};

TEST_F(DocumentsTest, ReadsLinesWithoutBlankOnes) {
  write("/a.jsonl",
        "\n{\"text\": \"one\"}\r\n  \t \n {\"n\": 1, \"text\": \"t\\u00e9\\n\"}  \n\n{\"text\":\"\"}");
  EXPECT_THAT(texts({"/a.jsonl"}), ElementsAre("one", "t\u00e9\n", ""));
  EXPECT_EQ(open({"/a.jsonl"})->place(1), "/a.jsonl: line 4");
}

TEST_F(DocumentsTest, ReadsFilesOneAfterAnother) {
  write("/a.jsonl", "{\"text\": \"1\"}\n{\"text\": \"2\"}\n");
  write("/empty.jsonl", "\n");
  write("/b.json", "{\"text\": \"3\"}\n");
  EXPECT_THAT(texts({"/a.jsonl", "/empty.jsonl", "/b.json"}), ElementsAre("1", "2", "3"));
  const auto documents = open({"/a.jsonl", "/empty.jsonl", "/b.json"});
  EXPECT_THAT(documents->file_documents(), ElementsAre(2, 0, 1));
  EXPECT_EQ(documents->place(2), "/b.json: line 1");
}

TEST_F(DocumentsTest, ReadsInAnyOrder) {
  std::string content;
  for (int i = 0; i < 5000; ++i) {
    content += "{\"text\": \"" + std::string(static_cast<size_t>(i % 300), 'x') + std::to_string(i) + "\"}\n";
  }
  write("/a.jsonl", content);
  const auto documents = open({"/a.jsonl"});
  std::string text;
  for (int64_t i : {4999, 0, 1, 2, 4000, 4001, 3, 2500, 2499}) {
    documents->read(i, &text);
    EXPECT_EQ(text, std::string(static_cast<size_t>(i % 300), 'x') + std::to_string(i));
  }
  for (int64_t i = 0; i < documents->size(); ++i) {
    documents->read(i, &text);
    ASSERT_EQ(text, std::string(static_cast<size_t>(i % 300), 'x') + std::to_string(i));
  }
}

TEST_F(DocumentsTest, UnpacksCompressedFilesAndLeavesNoSpool) {
  std::string content;
  for (int i = 0; i < 50000; ++i) content += "{\"text\": \"document " + std::to_string(i * 7919) + "\"}\n";
  write("/plain.jsonl", content);
  write("/a.jsonl.gz", gzip(content.substr(0, 1000)) + gzip(content.substr(1000)));
  write("/b.json.zst", zstd(content.substr(0, 1000)) + zstd(content.substr(1000)));
  const std::vector<std::string> plain = texts({"/plain.jsonl"});
  EXPECT_EQ(plain.size(), 50000u);
  EXPECT_EQ(texts({"/a.jsonl.gz"}), plain);
  EXPECT_EQ(texts({"/b.json.zst"}), plain);
  EXPECT_TRUE(storage->list("/tmp").empty());
}

TEST_F(DocumentsTest, NamesCompressedFilesThatAreCutShort) {
  const std::string content(5000, ' ');
  for (const auto& [path, packed] :
       {std::pair<std::string, std::string>{"/a.json.gz", gzip(content)}, {"/b.json.zst", zstd(content)}}) {
    for (size_t size : {size_t{0}, size_t{5}, packed.size() / 2, packed.size() - 1}) {
      write(path, packed.substr(0, size));
      ErrorCode code{};
      EXPECT_THAT(error_of([&] { open({path}); }, &code), AllOf(HasSubstr(path), HasSubstr("cut short")));
      EXPECT_EQ(code, ErrorCode::kTruncated);
    }
  }
  EXPECT_TRUE(storage->list("/tmp").empty());
}

TEST_F(DocumentsTest, NamesDamagedCompressedFiles) {
  write("/a.json.gz", "no gzip at all");
  EXPECT_THAT(error_of([&] { open({"/a.json.gz"}); }),
              AllOf(HasSubstr("/a.json.gz"), HasSubstr("damaged gzip")));
  write("/b.json.zst", "no zstd at all");
  EXPECT_THAT(error_of([&] { open({"/b.json.zst"}); }),
              AllOf(HasSubstr("/b.json.zst"), HasSubstr("damaged zstd")));
}

TEST_F(DocumentsTest, NamesTheLineOfABadRecord) {
  const std::string good = "{\"text\": \"good\"}\n";
  EXPECT_THAT(error_of(good + "\n" + "{\"text\": \"cut\n" + good, 1),
              AllOf(HasSubstr("/bad.jsonl"), HasSubstr("line 3"), HasSubstr("not valid JSON")));
  EXPECT_THAT(error_of(good + "[1]\n", 1), HasSubstr("line 2: is an array, expected one object a line"));
  EXPECT_THAT(error_of("{\"text\": \"\xff\"}"), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of("{\"text\": \"a\", \"x\": nul}"), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of("{\"text\": \"\\ud800\"}"), HasSubstr("line 1"));
  EXPECT_THAT(error_of("{\"text\": \"a\"} {\"text\": \"b\"}"), HasSubstr("line 1"));
}

TEST_F(DocumentsTest, NamesMissingFieldsAndWrongTypes) {
  ErrorCode code{};
  EXPECT_THAT(error_of("{\"content\": 1, \"url\": 2}", 0, &code),
              HasSubstr("no field 'text' (it has 'content', 'url'"));
  EXPECT_EQ(code, ErrorCode::kMissingKey);
  EXPECT_THAT(error_of("{}"), HasSubstr("it has none"));
  EXPECT_THAT(error_of("{\"text\": 12}"), HasSubstr("field 'text' is a number, expected a string"));
  EXPECT_THAT(error_of("{\"text\": null}"), HasSubstr("field 'text' is null"));
  EXPECT_THAT(error_of("{\"text\": [\"a\"]}"), HasSubstr("field 'text' is an array"));
  EXPECT_THAT(error_of("{\"text\": \"a\", \"text\": \"b\"}"), HasSubstr("occurs twice"));
}

TEST_F(DocumentsTest, ReadsTheFieldThatIsAskedFor) {
  write("/a.jsonl", "{\"content\": \"here\"}");
  const auto documents = open({"/a.jsonl"}, "content");
  std::string text;
  documents->read(0, &text);
  EXPECT_EQ(text, "here");
}

TEST_F(DocumentsTest, FindsDataFilesInOrderOfTheirPaths) {
  for (const char* folder : {"/data", "/data/b", "/data/.git", "/none"}) storage->make_directory(folder);
  for (const char* file : {"/data/z.jsonl", "/data/b/1.json.gz", "/data/b/0.parquet", "/data/a.ndjson.zst",
                           "/data/README.md", "/data/.hidden.json", "/data/.git/x.json", "/data/a.gz"}) {
    write(file, "");
  }
  EXPECT_THAT(find_data_files(*storage, "/data"),
              ElementsAre("/data/a.ndjson.zst", "/data/b/0.parquet", "/data/b/1.json.gz", "/data/z.jsonl"));
  EXPECT_THAT(find_data_files(*storage, "/data", "z."), ElementsAre("/data/z.jsonl"));
  EXPECT_THAT(find_data_files(*storage, "/data", "no such").size(), 4);
  EXPECT_THAT(find_data_files(*storage, "/data/README.md"), ElementsAre("/data/README.md"));
  EXPECT_THAT(error_of([&] { find_data_files(*storage, "/none"); }),
              AllOf(HasSubstr("/none"), HasSubstr("no data files")));
  EXPECT_THAT(error_of([&] { find_data_files(*storage, "/absent"); }), HasSubstr("/absent"));
}

TEST_F(DocumentsTest, FingerprintIsOfTheDataAndNotOfItsPlace) {
  write("/a.jsonl", "{\"text\": \"1\"}");
  write("/b.jsonl", "{\"text\": \"1\"}");
  write("/c.jsonl", "{\"text\": \"2\"}");
  EXPECT_EQ(open({"/a.jsonl"})->fingerprint(), open({"/b.jsonl"})->fingerprint());
  EXPECT_NE(open({"/a.jsonl"})->fingerprint(), open({"/c.jsonl"})->fingerprint());
  EXPECT_NE(open({"/a.jsonl"})->fingerprint(), open({"/a.jsonl"}, "content")->fingerprint());
  EXPECT_NE(open({"/a.jsonl"})->cache_key(), open({"/b.jsonl"})->cache_key());
}

}  // namespace
}  // namespace milepost::data
