#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "milepost/base/error.h"
#include "milepost/format/pickle.h"

namespace milepost::pickle {
namespace {

using std::string_literals::operator""s;
using testing::HasSubstr;

Document read_as(std::string_view pickle, Profile profile, bool keep_unknown_globals = false) {
  Options options;
  options.profile = profile;
  options.keep_unknown_globals = keep_unknown_globals;
  return read(as_bytes(pickle), options, "dir/data.pkl");
}
std::string json_of(std::string_view pickle, Profile profile = Profile::kTorchSave, bool keep = false) {
  return to_json(read_as(pickle, profile, keep).root());
}

// What reading throws: "code at offset: summary".
std::string refusal(std::string_view pickle, const Options& options = {}) {
  try {
    read(as_bytes(pickle), options, "dir/data.pkl");
  } catch (const FormatError& error) {
    EXPECT_EQ(error.path(), "dir/data.pkl");
    return std::string(error_code_name(error.code())) + " at " + std::to_string(error.offset()) + ": " +
           error.summary();
  }
  return "none";
}
TEST(PickleRead, KeepsValuesAndWhatFollowsIsIgnored) {
  const Document document = read_as("\x80\x02]q\0(K\1U\3abce.trailing"s, Profile::kPlain);
  EXPECT_EQ(document.bytes_read(), 15);
  const Value& root = document.root();
  ASSERT_EQ(root.kind(), Kind::kList);
  ASSERT_EQ(root.size(), 2);
  EXPECT_EQ(root.item(0).as_int(), 1);
  EXPECT_EQ(root.item(1).text(), "abc");
}

TEST(PickleRead, OwnsItsValues) {
  std::string pickle = "\x80\x02X\5\0\0\0hello."s;
  Document document = read_as(pickle, Profile::kPlain);
  pickle.assign(pickle.size(), 'x');
  const Value* root = &document.root();
  const Document moved = std::move(document);
  EXPECT_EQ(root, &moved.root());
  EXPECT_EQ(moved.root().text(), "hello");
}

TEST(PickleRead, DefaultDocumentIsNone) {
  const Document document;
  EXPECT_TRUE(document.root().is_none());
  EXPECT_EQ(document.bytes_read(), 0);
}

TEST(PickleRead, FindsKeysOfDicts) {
  const Document document = read_as("}(X\1\0\0\0aK\1K\7K\2u."s, Profile::kPlain);
  ASSERT_NE(document.root().find("a"), nullptr);
  EXPECT_EQ(document.root().find("a")->as_int(), 1);
  EXPECT_EQ(document.root().find("b"), nullptr);
  EXPECT_EQ(document.root().class_name(), "");
  EXPECT_EQ(document.root().state(), nullptr);
}

TEST(PickleRead, RepeatedKeyKeepsItsPlaceAndTakesTheLastValue) {
  EXPECT_EQ(json_of("}(X\1\0\0\0aK\1X\1\0\0\0bK\2X\1\0\0\0aK\3u."s), R"({"a": 3, "b": 2})");
}

TEST(PickleRead, EqualNumbersAreOneKey) {
  // {1: 1, True: 2, 1.0: 3, 2: 4}
  EXPECT_EQ(json_of("}(K\1K\1\x88K\2G\x3f\xf0\0\0\0\0\0\0K\3K\2K\4u."s),
            R"({"$dict": [[1, 3], [2, 4]], "$class": "dict"})");
}

TEST(PickleRead, ManyRepeatedKeysAreDroppedByHash) {
  std::string pickle = "}(";
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 200; ++i)
      pickle += "I" + std::to_string(i) + "\n(K\1I" + std::to_string(i) + "\nt" + "I" +
                std::to_string(round) + "\nI0\n";
  }
  pickle += "u.";
  const Document document = read_as(pickle, Profile::kPlain);
  // Each round gives key i the tuple (1, i), and key `round` the value 0.
  ASSERT_EQ(document.root().size(), 200);
  EXPECT_EQ(document.root().key(0).as_int(), 0);
  EXPECT_EQ(document.root().key(199).as_int(), 199);
}

TEST(PickleRead, EqualTuplesAreOneKeyAndNansAreNot) {
  EXPECT_EQ(json_of("}(K\1K\2\x86K\1K\1K\2\x86K\3u."s),
            R"({"$dict": [[{"$tuple": [1, 2]}, 3]], "$class": "dict"})");
  EXPECT_EQ(read_as("}(Fnan\nK\1Fnan\nK\2u."s, Profile::kPlain).root().size(), 2);
}

TEST(PickleRead, RepeatedSetElementsAreDropped) {
  EXPECT_EQ(json_of("\x80\4\x8f(K\1K\2K\1\x90."s), R"({"$set": [1, 2]})");
  EXPECT_EQ(json_of("\x80\4(K\1K\2K\1\x91."s), R"({"$set": [1, 2]})");
}

TEST(PickleRead, SharedAndSelfReferentialListsAreKept) {
  const Document shared = read_as("](]q\1h\1e."s, Profile::kPlain);
  EXPECT_EQ(&shared.root().item(0), &shared.root().item(0));
  EXPECT_EQ(to_json(shared.root()), "[[], []]");
  const Document self = read_as("]q\0h\0a."s, Profile::kPlain);
  EXPECT_EQ(self.root().item(0).item(0).item(0).size(), 1);
}

TEST(PickleRead, AppendingAfterSharingIsSeenEverywhere) {
  EXPECT_EQ(json_of("](]q\1h\1e0h\1K\5a."s), "[5]");
  EXPECT_EQ(json_of("]q\0(]q\1h\1e0h\1K\5a0h\0."s), "[[5], [5]]");
}

TEST(PickleRead, MemoTakesSparseIndexes) {
  EXPECT_EQ(json_of("K\5r\xff\xff\xff\xff"
                    "0K\6r\0\0\0\x40"s
                    "0j\xff\xff\xff\xffj\0\0\0\x40\x86."s),
            R"({"$tuple": [5, 6]})");
  EXPECT_EQ(json_of("K\5p123456789012\n0g123456789012\n."s), "5");
  EXPECT_EQ(json_of("K\5q\x10"
                    "0K\6q\2"
                    "0K\7q\2"
                    "0h\x10h\2\x86."s),
            R"({"$tuple": [5, 7]})");
  EXPECT_THAT(refusal("K\5q\x10"
                      "0h\3."s),
              HasSubstr("bad_format at 5: nothing was stored under memo number 3"));
}

TEST(PickleRead, StackOpcodesRespectMarks) {
  EXPECT_EQ(json_of("K\1(K\2K\3"
                    "1."s),
            "1");
  EXPECT_EQ(json_of("K\1(0."s), "1");
  EXPECT_EQ(json_of("K\1"
                    "2\x86."s),
            R"({"$tuple": [1, 1]})");
  EXPECT_THAT(refusal("K\1(a."s), HasSubstr("bad_format at 3: the opcode takes a value from an empty stack"));
  EXPECT_THAT(refusal("]K\1e."s), HasSubstr("bad_format at 3: the opcode wants a mark"));
  EXPECT_THAT(refusal("(e."s), HasSubstr("the list to append to is missing"));
  EXPECT_THAT(refusal("](K\1(e."s), HasSubstr("appended to something that is no list"));
  EXPECT_THAT(refusal("](\x86."s), HasSubstr("a tuple wants more values than the stack holds"));
  EXPECT_THAT(refusal("}(K\1u."s), HasSubstr("a key without a value"));
  EXPECT_THAT(refusal("}K\1s."s), HasSubstr("the stack holds no dict, key and value"));
  EXPECT_THAT(refusal("."s), HasSubstr("empty stack"));
}

TEST(PickleRead, TextOpcodesOfProtocol0) {
  EXPECT_EQ(json_of("(I01\nI00\nI7\nI-12\nL12345678901234567890L\nL5\nF2.5\nF-1e+20\nl."s),
            R"([true, false, 7, -12, {"$int": "12345678901234567890"}, 5, 2.5, -1e+20])");
  EXPECT_EQ(json_of("(S'a\\x41\\n\\'\\\\\\101\\q'\nS\"b\"\nVa\\u00e9\\U0001f600\xe9\nl."s),
            R"(["aA\n'\\A\\q", "b", "a)"
            "\xc3\xa9\xf0\x9f\x98\x80\xc3\xa9"
            R"("])");
  EXPECT_EQ(json_of("(S'k'\nI1\nd."s), R"({"k": 1})");
}

TEST(PickleRead, TextsOfPython2AreBytesUnlessUtf8) {
  EXPECT_EQ(json_of("U\3abc."s), "\"abc\"");
  EXPECT_EQ(json_of("T\2\0\0\0\xff\xfe."s), R"({"$bytes": "fffe"})");
  EXPECT_EQ(json_of("S'\\xff'\n."s), R"({"$bytes": "ff"})");
}

TEST(PickleRead, RefusesBadText) {
  EXPECT_THAT(refusal("Ix\n."s), HasSubstr("bad_format at 0: 'x' is no integer"));
  EXPECT_THAT(refusal("I\n."s), HasSubstr("is no integer"));
  EXPECT_THAT(refusal("Fx\n."s), HasSubstr("is no float"));
  EXPECT_THAT(refusal("F1.5y\n."s), HasSubstr("is no float"));
  EXPECT_THAT(refusal("S'abc\n."s), HasSubstr("string literal is not closed"));
  EXPECT_THAT(refusal("Sabc\n."s), HasSubstr("string literal is not closed"));
  EXPECT_THAT(refusal("S'\\x4'\n."s), HasSubstr("bad escape"));
  EXPECT_THAT(refusal("Va\\u12\n."s), HasSubstr("bad \\u escape"));
  EXPECT_THAT(refusal("Va\\U00110000\n."s), HasSubstr("bad \\u escape"));
  EXPECT_THAT(refusal("K\1p-1\n."s), HasSubstr("'-1' is no memo number"));
  EXPECT_THAT(refusal("I12"s), HasSubstr("truncated at 0"));
  EXPECT_THAT(refusal("X\2\0\0\0\xc3\x28."s), HasSubstr("bad_format at 0: a text is not UTF-8"));
  EXPECT_THAT(refusal("X\2\0\0\0\xc0\x80."s), HasSubstr("not UTF-8"));
  EXPECT_THAT(refusal("X\3\0\0\0\xe0\x80\x80."s), HasSubstr("not UTF-8"));
  EXPECT_THAT(refusal("X\4\0\0\0\xf4\x90\x80\x80."s), HasSubstr("not UTF-8"));
}

TEST(PickleRead, LoneSurrogatesPass) {
  const Document document = read_as("X\3\0\0\0\xed\xa0\xbd."s, Profile::kPlain);
  EXPECT_EQ(document.root().text(), "\xed\xa0\xbd");
  EXPECT_EQ(to_json(document.root()), R"("\ud83d")");
}

TEST(PickleRead, CountsBeyondTheInputAreTruncation) {
  for (const std::string& opcode : {"X\xff\xff\xff\xff"s, "\x8d\xff\xff\xff\xff\xff\xff\xff\xff"s,
                                    "\x8e\0\0\0\0\0\0\0\x80"s, "\x96\xff\xff\xff\xff\xff\xff\xff\x7f"s,
                                    "B\0\0\0\x10"s, "C\x05"s, "T\xff\xff\xff\xff"s, "\x8c\x09"s}) {
    EXPECT_THAT(refusal("\x80\4" + opcode + "abc"), HasSubstr("truncated at 2: the pickle ends early"))
        << opcode;
  }
  EXPECT_THAT(refusal(""s), HasSubstr("truncated at 0"));
  EXPECT_THAT(refusal("\x80"s), HasSubstr("truncated at 0"));
  EXPECT_THAT(refusal("K\1"s), HasSubstr("truncated at 2"));
}

TEST(PickleRead, RefusesUnknownOpcodesAndProtocols) {
  EXPECT_THAT(refusal("\x80\2\xff."s), HasSubstr("bad_format at 2: 0xff is no opcode"));
  EXPECT_THAT(refusal("\x80\6N."s), HasSubstr("unsupported at 0: pickle protocol 6"));
  EXPECT_THAT(refusal("hello"s), HasSubstr("bad_format at 0"));
}

TEST(PickleRead, RefusesWhatNeedsSomethingOutsideThePickle) {
  EXPECT_THAT(refusal("\x82\1."s), HasSubstr("unsupported at 0: an extension code"));
  EXPECT_THAT(refusal("\x83\1\1."s), HasSubstr("an extension code"));
  EXPECT_THAT(refusal("\x84\1\1\1\1."s), HasSubstr("an extension code"));
  EXPECT_THAT(refusal("\x97."s), HasSubstr("out-of-band buffer"));
  EXPECT_THAT(refusal("K\1\x98."s), HasSubstr("out-of-band buffer"));
  EXPECT_THAT(refusal("Pid\n."s), HasSubstr("unsupported at 0: a persistent id that is a text: 'id'"));
  EXPECT_THAT(refusal("K\1Q."s), HasSubstr("unsupported at 2: a persistent id that stands for no storage"));
}

TEST(PickleRead, RefusesLongIntegersBeyondTheLimit) {
  EXPECT_EQ(json_of("\x8a\0."s), "0");
  EXPECT_EQ(json_of("\x8a\2\xff\0."s), "255");
  EXPECT_EQ(json_of("\x8a\x0a\xfe\xff\xff\xff\xff\xff\xff\xff\xff\xff."s), "-2") << "not the shortest form";
  EXPECT_THAT(refusal("\x8b\1\4\0\0"s + std::string(1025, 'x') + "."),
              HasSubstr("too_large at 0: an integer of 1025 bytes"));
  EXPECT_THAT(refusal("\x8b\xff\xff\xff\xff."s), HasSubstr("too_large at 0"));
  EXPECT_THAT(refusal("L" + std::string(3000, '1') + "L\n."),
              HasSubstr("too_large at 0: an integer of 3000 digits"));
}

TEST(PickleRead, RefusesKeysThatCannotBeHashed) {
  for (const std::string& key : {"]"s, "}"s, "\x8f"s, "\x96\0\0\0\0\0\0\0\0"s}) {
    EXPECT_THAT(refusal("}" + key + "K\1s."), HasSubstr("is used as a key")) << key;
  }
}

}  // namespace
}  // namespace milepost::pickle
