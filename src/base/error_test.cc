#include "milepost/base/error.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <set>
#include <string>

namespace milepost {
namespace {

TEST(Error, ShowsOnlyTheFieldsThatAreSet) {
  EXPECT_STREQ(Error(ErrorCode::kIo, "it broke").what(), "it broke");
  EXPECT_STREQ(Error(ErrorCode::kIo, "it broke", "try again").what(), "it broke; try again");
  EXPECT_STREQ(Error(ErrorCode::kIo, "it broke").set_key("w").what(), "entry 'w': it broke");
  EXPECT_STREQ(Error(ErrorCode::kIo, "it broke").set_offset(0).what(), "at byte 0: it broke");
}

TEST(Error, BuildsTheWholeText) {
  FormatError error(ErrorCode::kTruncated, "record is cut short", "copy the file again");
  error.set_offset(4096).set_key("layers.0.wq.weight").set_path("model/__0_0.distcp");
  EXPECT_STREQ(error.what(),
               "model/__0_0.distcp: entry 'layers.0.wq.weight', at byte 4096: record is cut short; copy the "
               "file again");
  EXPECT_EQ(error.summary(), "record is cut short");
}

TEST(Error, KeepsTheFirstContext) {
  Error error(ErrorCode::kIo, "x");
  error.set_path("inner").set_path("outer").set_key("a").set_key("b").set_offset(5).set_offset(6);
  error.set_hint("first").set_hint("second").set_error_number(ENOSPC).set_error_number(EIO);
  EXPECT_EQ(error.path(), "inner");
  EXPECT_EQ(error.key(), "a");
  EXPECT_EQ(error.offset(), 5);
  EXPECT_EQ(error.hint(), "first");
  EXPECT_EQ(error.error_number(), ENOSPC);
}

TEST(Error, NamesTheSystemsReason) {
  const StorageError error(ErrorCode::kIo, "cannot write", "/data/x", EIO);
  EXPECT_STREQ(error.what(), "/data/x: cannot write: Input/output error");
  EXPECT_EQ(error.error_number(), EIO);
}

TEST(Error, EscapesHostileNamesInTheTextOnly) {
  Error error(ErrorCode::kBadFormat, "bad");
  error.set_key("\x1b[31mred\n");
  EXPECT_EQ(std::string(error.what()), "entry '\\x1b[31mred\\n': bad");
  EXPECT_EQ(error.key(), "\x1b[31mred\n");
}

TEST(Error, IsCaughtAsItsFamily) {
  EXPECT_THROW(throw ValueError("v"), Error);
  EXPECT_THROW(throw FormatError(ErrorCode::kHole, "f"), Error);
  EXPECT_THROW(throw StorageError(ErrorCode::kIo, "s", "p"), std::exception);
  EXPECT_EQ(ValueError("v").code(), ErrorCode::kBadArgument);
  EXPECT_EQ(MissingKeyError("m").code(), ErrorCode::kMissingKey);
  EXPECT_EQ(ShapeMismatchError("s").code(), ErrorCode::kShapeMismatch);
  EXPECT_EQ(CheckpointManifestError("m").code(), ErrorCode::kBadManifest);
}

TEST(ErrorCodes, HaveDistinctNames) {
  std::set<std::string_view> names;
  const int count = static_cast<int>(ErrorCode::kBadManifest) + 1;
  for (int code = 0; code < count; ++code) names.insert(error_code_name(static_cast<ErrorCode>(code)));
  EXPECT_EQ(names.size(), static_cast<size_t>(count));
  EXPECT_FALSE(names.contains("unknown"));
  EXPECT_EQ(error_code_name(ErrorCode::kRefusedGlobal), "refused_global");
}

TEST(Printable, PassesTextAndEscapesTheRest) {
  EXPECT_EQ(printable("plain, with spaces"), "plain, with spaces");
  EXPECT_EQ(printable("größe ☃ 🙂"), "größe ☃ 🙂");
  EXPECT_EQ(printable("a\tb\r\n"), "a\\tb\\r\\n");
  EXPECT_EQ(printable("it's \\ here"), "it\\'s \\\\ here");
  EXPECT_EQ(printable(std::string("\0\x7f", 2)), "\\x00\\x7f");
}

TEST(Printable, ShowsInvalidUtf8AsBytes) {
  EXPECT_EQ(printable("\xff"), "\\xff");
  EXPECT_EQ(printable("\xc3"), "\\xc3") << "cut short";
  EXPECT_EQ(printable("\xc0\xaf"), "\\xc0\\xaf") << "overlong";
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "surrogate";
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80") << "beyond U+10FFFF";
  EXPECT_EQ(printable("\xc2\x9b"), "\\xc2\\x9b") << "C1 control";
  EXPECT_EQ(printable("\xe2\x98"), "\\xe2\\x98") << "cut short";
}

TEST(Printable, CutsLongText) {
  EXPECT_EQ(printable(std::string(300, 'x')), std::string(200, 'x') + "...");
  EXPECT_EQ(printable("abcdef", 3), "abc...");
  EXPECT_EQ(printable("abc", 3), "abc");
}

}  // namespace
}  // namespace milepost
