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

TEST(PickleCalls, RefusesUnknownGlobalsByName) {
  EXPECT_THAT(refusal("\x80\2cos\nsystem\nX\2\0\0\0id\x85R."s),
              HasSubstr("refused_global at 2: the pickle names os.system, which is not on the list"));
  EXPECT_THAT(refusal("\x80\4\x8c\2os\x8c\6system\x93N\x85R."s),
              HasSubstr("refused_global at 14: the pickle names os.system"));
  EXPECT_THAT(refusal("(S'ls'\nios\nsystem\n."s),
              HasSubstr("refused_global at 7: the pickle names os.system"));
  EXPECT_THAT(refusal("(cos\nsystem\nS'ls'\no."s), HasSubstr("os.system"));
  EXPECT_THAT(refusal("c\x1b[31m\nx\n."s), HasSubstr("\\x1b"));
}

TEST(PickleCalls, RefusesByNameWhatTorchWouldExecute) {
  for (const char* global :
       {"torch._tensor\n_rebuild_from_type_v2\n", "_io\nBytesIO\n", "torch.storage\n_load_from_bytes\n",
        "builtins\neval\n", "builtins\ngetattr\n", "torch\nload\n", "torch\nfloat33\n",
        "torch\nQInt8Storage\n", "torch\nfloat6_e2m3\n", "collections\ndeque\n"}) {
    EXPECT_THAT(refusal("c" + std::string(global) + "."), HasSubstr("refused_global")) << global;
  }
}

TEST(PickleCalls, ProfilesAllowWhatTheyNeed) {
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

TEST(PickleCalls, UnknownGlobalsCanBeKeptForDisplay) {
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
  EXPECT_EQ(
      json_of("ctorch._utils\n_rebuild_tensor_v2\n((S'storage'\nctorch\nQInt8Storage\nS'0'\nS'cpu'\nI1\ntQ"
              "I0\n(t(tI00\nNtR."s,
              Profile::kTorchSave, true),
      R"({"$opaque": "torch QInt8Storage"})");
  const Document document = read_as("cmy\nThing\n."s, Profile::kPlain, true);
  EXPECT_EQ(document.root().kind(), Kind::kOpaque);
  EXPECT_EQ(document.root().class_name(), "my Thing");
}

TEST(PickleCalls, MetadataObjectsKeepTheirState) {
  const std::string module = "ctorch.distributed.checkpoint.metadata\n"s;
  EXPECT_EQ(
      json_of(
          module +
              "MetadataIndex\n)\x81}(X\3\0\0\0fqnX\1\0\0\0wX\6\0\0\0offsetctorch\nSize\nK\1K\2\x86\x85Rub."s,
          Profile::kDcpMetadata),
      R"({"$object": "torch.distributed.checkpoint.metadata MetadataIndex", )"
      R"("state": {"fqn": "w", "offset": {"$size": [1, 2]}}})");
  EXPECT_EQ(json_of(module + "BytesStorageMetadata\n)\x81.", Profile::kDcpMetadata),
            R"({"$object": "torch.distributed.checkpoint.metadata BytesStorageMetadata"})");
  EXPECT_EQ(json_of(module + "_MEM_FORMAT_ENCODING\nK\2\x85R.", Profile::kDcpMetadata),
            R"({"$object": "torch.distributed.checkpoint.metadata _MEM_FORMAT_ENCODING", )"
            R"("state": {"$tuple": [2]}})");
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

TEST(PickleCalls, PathsAreJoined) {
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

TEST(PickleCalls, CallsWithWrongArgumentsAreRefused) {
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

TEST(PickleCalls, BytesComeFromLatin1Text) {
  EXPECT_EQ(json_of("c_codecs\nencode\nX\4\0\0\0\xc3\xbf\xc2\x80X\6\0\0\0latin1\x86R."s),
            R"({"$bytes": "ff80"})");
  EXPECT_THAT(refusal("c_codecs\nencode\nX\3\0\0\0\xe2\x82\xacX\6\0\0\0latin1\x86R."s),
              HasSubstr("above U+00FF"));
  EXPECT_THAT(refusal("c_codecs\nencode\nU\1aX\5\0\0\0utf-8\x86R."s), HasSubstr("unsupported"));
}

TEST(PickleCalls, NumpyObjectsAreShownNotMade) {
  EXPECT_EQ(json_of("cnumpy\ndtype\n(U\2f8\x89\x88tR(K\3U\1<NtbN\x85."s, Profile::kPlain),
            R"({"$tuple": [null]})");
  EXPECT_EQ(
      json_of("cnumpy\ndtype\n(U\2f8\x89\x88tR(K\3U\1<Ntb."s, Profile::kPlain),
      R"({"$object": "numpy dtype", "state": {"$tuple": ["f8", false, true, {"$tuple": [3, "<", null]}]}})");
}

TEST(PickleCalls, DevicesDtypesAndSizes) {
  EXPECT_EQ(json_of("ctorch\ndevice\nU\4cudaK\1\x86R."s), R"({"$device": "cuda:1"})");
  EXPECT_EQ(json_of("ctorch\nfloat8_e4m3fn\n."s), R"({"$dtype": "float8_e4m3fn"})");
  EXPECT_EQ(json_of("ctorch\nSize\n)\x85R."s), R"({"$size": []})");
}

TEST(PickleCalls, OrderedDictKeepsAttributes) {
  const Document document =
      read_as("ccollections\nOrderedDict\n)RU\1aK\1s}U\4noteK\7sb."s, Profile::kTorchSave);
  EXPECT_EQ(document.root().class_name(), "collections OrderedDict");
  ASSERT_NE(document.root().state(), nullptr);
  EXPECT_EQ(document.root().state()->find("note")->as_int(), 7);
  EXPECT_EQ(to_json(document.root()), R"({"$dict": [["a", 1]], "$class": "OrderedDict"})");
}

TEST(PickleCalls, LooksLikePickleWantsBothEnds) {
  EXPECT_TRUE(looks_like_pickle("\x80\4N."));
  EXPECT_FALSE(looks_like_pickle("\x80\1N."));
  EXPECT_FALSE(looks_like_pickle("\x80\6N."));
  EXPECT_FALSE(looks_like_pickle("\x80\4N"));
  EXPECT_FALSE(looks_like_pickle(""));
  EXPECT_FALSE(looks_like_pickle("\x80."));
}

}  // namespace
}  // namespace milepost::pickle
