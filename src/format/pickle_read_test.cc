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
std::string refusal(std::string_view pickle, Profile profile) {
  Options options;
  options.profile = profile;
  return refusal(pickle, options);
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

// ---- limits ----

TEST(PickleRead, NestingIsLimited) {
  const auto nested = [](int depth) {
    std::string pickle(static_cast<size_t>(depth), ']');
    return pickle + std::string(static_cast<size_t>(depth - 1), 'a') + ".";
  };
  EXPECT_EQ(refusal(nested(1000)), "none");
  EXPECT_THAT(refusal(nested(1001)), HasSubstr("too_large at 2001: containers nest more than 1000 deep"));
  EXPECT_THAT(refusal(nested(300'000)), HasSubstr("too_large"));
  Options options;
  options.max_depth = 3;
  EXPECT_EQ(refusal("N\x85\x85\x85."s, options), "none");
  EXPECT_THAT(refusal("N\x85\x85\x85\x85."s, options), HasSubstr("more than 3 deep"));
  EXPECT_THAT(refusal("]q\0]q\1]q\2]q\3"s
                      "0000h\0h\1a0h\1h\2a0h\2h\3a0h\0."s,
                      options),
              HasSubstr("more than 3 deep"));
}

TEST(PickleRead, DepthOfSharedTuplesIsTheLongestPath) {
  // t0 = (None,), t1 = (t0, t0), ... t40: 2^40 paths.
  std::string pickle = "N\x85";
  for (int i = 0; i < 40; ++i) pickle += "q\1h\1\x86";
  EXPECT_EQ(refusal(pickle + "."), "none");
  Options options;
  options.max_depth = 40;
  EXPECT_THAT(refusal(pickle + ".", options), HasSubstr("too_large"));
  EXPECT_THAT(refusal("}" + pickle + "K\1sK\2N\x86."),
              testing::AnyOf(HasSubstr("none"), HasSubstr("too_large")));
  EXPECT_THAT(refusal("}(" + pickle + "q\2K\1h\2\x85K\2u."), HasSubstr("none"))
      << "keys of different size differ at once";
}

TEST(PickleRead, KeysThatTakeTooLongToCompareAreRefused) {
  std::string key = "N\x85";
  for (int i = 0; i < 40; ++i) key += "q\1h\1\x86";  // equal to a copy of itself, after 2^40 comparisons
  EXPECT_THAT(refusal("}(" + key + "K\1" + key + "K\2u."), HasSubstr("too_large"));
}

TEST(PickleRead, MemoryIsLimited) {
  // A bytearray from bytes is a copy: 7 bytes of pickle for 1000.
  std::string pickle = "B\xe8\3\0\0"s + std::string(1000, 'x') +
                       "q\0"
                       "0cbuiltins\nbytearray\nq\1("s;
  for (int i = 0; i < 2000; ++i) pickle += "h\1h\0\x85R"s;
  EXPECT_THAT(refusal(pickle + "t."), HasSubstr("too_large"));
  Options options;
  options.max_memory_bytes = 64 << 20;
  EXPECT_EQ(refusal(pickle + "t.", options), "none");
  options.max_memory_bytes = 1000;
  EXPECT_THAT(refusal("\x8e\x00\x10\0\0\0\0\0\0"s + std::string(4096, 'x') + ".", options),
              HasSubstr("more than 1000 bytes"));
}

TEST(PickleRead, DensePicklesStayWithinTheDefaultLimit) {
  for (const std::string& piece :
       {"]"s, "}"s, ")"s, "]Na"s, "}NNs"s, "N\x85"s, "]\x94"s, "}\x94"s, "\x8f"s, "\x8c\1a"s, "(d"s, "(l"s}) {
    std::string pickle = "\x80\4(";
    while (pickle.size() < 600'000) pickle += piece;
    EXPECT_EQ(refusal(pickle + "t."), "none") << piece;
  }
  EXPECT_EQ(refusal("\x80\4](" + std::string(600'000, 'N') + "e."), "none");
  std::string batches = "\x80\4]";
  for (int i = 0; i < 600; ++i) batches += "(" + std::string(1000, 'N') + "e";
  EXPECT_EQ(refusal(batches + "."), "none");
}

// ---- classes and functions ----

TEST(PickleRead, RefusesUnknownGlobalsByName) {
  EXPECT_THAT(refusal("\x80\2cos\nsystem\nX\2\0\0\0id\x85R."s),
              HasSubstr("refused_global at 2: the pickle names os.system, which is not on the list"));
  EXPECT_THAT(refusal("\x80\4\x8c\2os\x8c\6system\x93N\x85R."s),
              HasSubstr("refused_global at 14: the pickle names os.system"));
  EXPECT_THAT(refusal("(S'ls'\nios\nsystem\n."s),
              HasSubstr("refused_global at 7: the pickle names os.system"));
  EXPECT_THAT(refusal("(cos\nsystem\nS'ls'\no."s), HasSubstr("os.system"));
  EXPECT_THAT(refusal("c\x1b[31m\nx\n."s), HasSubstr("\\x1b"));
}

TEST(PickleRead, RefusesByNameWhatTorchWouldExecute) {
  for (const char* global :
       {"torch._tensor\n_rebuild_from_type_v2\n", "_io\nBytesIO\n", "torch.storage\n_load_from_bytes\n",
        "builtins\neval\n", "builtins\ngetattr\n", "torch\nload\n", "torch\nfloat33\n",
        "torch\nQInt8Storage\n", "torch\nfloat6_e2m3\n", "collections\ndeque\n"}) {
    EXPECT_THAT(refusal("c" + std::string(global) + "."), HasSubstr("refused_global")) << global;
  }
}

TEST(PickleRead, ProfilesAllowWhatTheyNeed) {
  const auto allowed = [](const std::string& global) {
    std::string result;
    for (const Profile profile : {Profile::kDcpMetadata, Profile::kTorchSave, Profile::kPlain}) {
      result += refusal("c" + global + ".", profile) == "none" ? '+' : '-';
    }
    return result;
  };
  EXPECT_EQ(allowed("torch.distributed.checkpoint.metadata\nMetadata\n"), "+--");
  EXPECT_EQ(allowed("torch.distributed.checkpoint.filesystem\n_StorageInfo\n"), "+--");
  EXPECT_EQ(allowed("pathlib\nPosixPath\n"), "+--");
  EXPECT_EQ(allowed("pathlib._local\nPosixPath\n"), "+--");
  EXPECT_EQ(allowed("torch\nSize\n"), "++-");
  EXPECT_EQ(allowed("torch\nbfloat16\n"), "++-");
  EXPECT_EQ(allowed("torch\nfloat8_e8m0fnu\n"), "++-");
  EXPECT_EQ(allowed("torch\nFloatStorage\n"), "-+-");
  EXPECT_EQ(allowed("torch._utils\n_rebuild_tensor_v2\n"), "-+-");
  EXPECT_EQ(allowed("collections\nOrderedDict\n"), "-++");
  EXPECT_EQ(allowed("__builtin__\nset\n"), "-++");
  EXPECT_EQ(allowed("numpy.core.multiarray\nscalar\n"), "--+");
  EXPECT_EQ(allowed("numpy\ndtype\n"), "--+");
  EXPECT_EQ(allowed("numpy\nload\n"), "---");
}

TEST(PickleRead, UnknownGlobalsCanBeKeptForDisplay) {
  // [1, Thing(2).state, {"k": Thing}]
  EXPECT_EQ(
      json_of("](K\1cmy.mod\nThing\nq\1K\2\x85R}X\1\0\0\0aK\1sb}X\1\0\0\0kh\1se."s, Profile::kPlain, true),
      R"([1, {"$opaque": "my.mod Thing"}, {"k": {"$opaque": "my.mod Thing"}}])");
  EXPECT_EQ(json_of("ccollections\ndeque\n)\x81(K\1K\2e."s, Profile::kPlain, true),
            R"({"$opaque": "collections deque"})");
  EXPECT_EQ(json_of("cmy\nDict\n)\x81(K\1K\2uK\1K\2s."s, Profile::kPlain, true), R"({"$opaque": "my Dict"})");
  EXPECT_EQ(json_of("ccopy_reg\n_reconstructor\n(cmy\nOld\nc__builtin__\nobject\nNtR(dK\1K\2sb."s,
                    Profile::kPlain, true),
            R"({"$opaque": "my Old"})");
  EXPECT_EQ(json_of("(K\1imy\nOld\n."s, Profile::kPlain, true), R"({"$opaque": "my Old"})");
  const Document document = read_as("cmy\nThing\n."s, Profile::kPlain, true);
  EXPECT_EQ(document.root().kind(), Kind::kOpaque);
  EXPECT_EQ(document.root().class_name(), "my Thing");
}

TEST(PickleRead, MetadataObjectsKeepTheirState) {
  const std::string module = "ctorch.distributed.checkpoint.metadata\n"s;
  EXPECT_EQ(
      json_of(
          module +
              "MetadataIndex\n)\x81}(X\3\0\0\0fqnX\1\0\0\0wX\6\0\0\0offsetctorch\nSize\nK\1K\2\x86\x85Rub."s,
          Profile::kDcpMetadata),
      R"({"$object": "torch.distributed.checkpoint.metadata MetadataIndex", "state": {"fqn": "w", "offset": {"$size": [1, 2]}}})");
  EXPECT_EQ(json_of(module + "BytesStorageMetadata\n)\x81.", Profile::kDcpMetadata),
            R"({"$object": "torch.distributed.checkpoint.metadata BytesStorageMetadata"})");
  EXPECT_EQ(
      json_of(module + "_MEM_FORMAT_ENCODING\nK\2\x85R.", Profile::kDcpMetadata),
      R"({"$object": "torch.distributed.checkpoint.metadata _MEM_FORMAT_ENCODING", "state": {"$tuple": [2]}})");
  EXPECT_EQ(json_of("ccopy_reg\n_reconstructor\n(" + module + "Metadata\nc__builtin__\nobject\nNtR.",
                    Profile::kDcpMetadata),
            R"({"$object": "torch.distributed.checkpoint.metadata Metadata"})");
  EXPECT_EQ(
      json_of("ctorch.serialization\n_get_layout\nX\x0d\0\0\0torch.strided\x85R."s, Profile::kDcpMetadata),
      "\"torch.strided\"");
  EXPECT_THAT(refusal(module + "Metadata\nK\1\x85\x81.", Profile::kDcpMetadata),
              HasSubstr("arguments of torch.distributed"));
  EXPECT_THAT(refusal(module + "Metadata\n)R.", Profile::kDcpMetadata),
              HasSubstr("may be named but not called"));
  EXPECT_THAT(refusal(module + "Metadata\n)\x81K\1b.", Profile::kDcpMetadata),
              HasSubstr("is no dict or tuple"));
}

TEST(PickleRead, PathsAreJoined) {
  const auto path = [](const std::string& pickle) {
    return json_of("cpathlib\n" + pickle, Profile::kDcpMetadata);
  };
  EXPECT_EQ(path("PosixPath\n(U\1/U\1aU\2b tR."s), R"({"$path": "/a/b "})");
  EXPECT_EQ(path("PosixPath\n)R."), R"({"$path": "."})");
  EXPECT_EQ(path("PosixPath\nU\1aU\1b\x86R."s), R"({"$path": "a/b"})");
  EXPECT_EQ(path("WindowsPath\nU\3C:\\U\1b\x86R."s), R"({"$path": "C:\\b"})");
  EXPECT_THAT(refusal("cpathlib\nPosixPath\nK\1\x85R."s, Profile::kDcpMetadata),
              HasSubstr("arguments of pathlib.PosixPath"));
}

TEST(PickleRead, CallsWithWrongArgumentsAreRefused) {
  for (const std::string& call : std::vector<std::string>{
           "c_codecs\nencode\nX\1\0\0\0a\x85R."s, "c__builtin__\nset\nK\1\x85R.",
           "c__builtin__\ncomplex\nK\1K\2\x86R.", "ctorch\nSize\nK\1\x85R.", "ctorch\nSize\nU\1a\x85\x85R.",
           "c__builtin__\nslice\n)R.", "c__builtin__\nxrange\nNNN\x87R.",
           "ccollections\nOrderedDict\nK\1\x85R.", "ccollections\nOrderedDict\n]K\1a\x85R.",
           "ctorch\ndevice\nK\1\x85R.", "ctorch\ndevice\nU\3a b\x85R.", "c__builtin__\nbytes\n]M\0\1a\x85R."s,
           "c__builtin__\nint\n)R.", "c__builtin__\nobject\n)R.", "K\1)R.", "c__builtin__\nset\nK\1R.",
           "K\1K\2b.", "]K\2b.", "ctorch\nfloat32\n)R."}) {
    EXPECT_NE(refusal(call), "none") << call;
  }
}

TEST(PickleRead, BytesComeFromLatin1Text) {
  EXPECT_EQ(json_of("c_codecs\nencode\nX\4\0\0\0\xc3\xbf\xc2\x80X\6\0\0\0latin1\x86R."s),
            R"({"$bytes": "ff80"})");
  EXPECT_THAT(refusal("c_codecs\nencode\nX\3\0\0\0\xe2\x82\xacX\6\0\0\0latin1\x86R."s),
              HasSubstr("above U+00FF"));
  EXPECT_THAT(refusal("c_codecs\nencode\nU\1aX\5\0\0\0utf-8\x86R."s), HasSubstr("unsupported"));
}

TEST(PickleRead, NumpyObjectsAreShownNotMade) {
  EXPECT_EQ(json_of("cnumpy\ndtype\n(U\2f8\x89\x88tR(K\3U\1<NtbN\x85."s, Profile::kPlain),
            R"({"$tuple": [null]})");
  EXPECT_EQ(
      json_of("cnumpy\ndtype\n(U\2f8\x89\x88tR(K\3U\1<Ntb."s, Profile::kPlain),
      R"({"$object": "numpy dtype", "state": {"$tuple": ["f8", false, true, {"$tuple": [3, "<", null]}]}})");
}

TEST(PickleRead, DevicesDtypesAndSizes) {
  EXPECT_EQ(json_of("ctorch\ndevice\nU\4cudaK\1\x86R."s), R"({"$device": "cuda:1"})");
  EXPECT_EQ(json_of("ctorch\nfloat8_e4m3fn\n."s), R"({"$dtype": "float8_e4m3fn"})");
  EXPECT_EQ(json_of("ctorch\nSize\n)\x85R."s), R"({"$size": []})");
}

TEST(PickleRead, OrderedDictKeepsAttributes) {
  const Document document =
      read_as("ccollections\nOrderedDict\n)RU\1aK\1s}U\4noteK\7sb."s, Profile::kTorchSave);
  EXPECT_EQ(document.root().class_name(), "collections OrderedDict");
  ASSERT_NE(document.root().state(), nullptr);
  EXPECT_EQ(document.root().state()->find("note")->as_int(), 7);
  EXPECT_EQ(to_json(document.root()), R"({"$dict": [["a", 1]], "$class": "OrderedDict"})");
}

TEST(PickleRead, LooksLikePickleWantsBothEnds) {
  EXPECT_TRUE(looks_like_pickle("\x80\4N."));
  EXPECT_FALSE(looks_like_pickle("\x80\1N."));
  EXPECT_FALSE(looks_like_pickle("\x80\6N."));
  EXPECT_FALSE(looks_like_pickle("\x80\4N"));
  EXPECT_FALSE(looks_like_pickle(""));
  EXPECT_FALSE(looks_like_pickle("\x80."));
}

}  // namespace
}  // namespace milepost::pickle
