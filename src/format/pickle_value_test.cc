// Tensors and storages inside pickles, the builder, the encoder and JSON.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "milepost/base/error.h"
#include "milepost/format/pickle.h"

namespace milepost::pickle {
namespace {

using std::string_literals::operator""s;
using testing::ElementsAre;
using testing::HasSubstr;

Document read_torch(std::string_view pickle) { return read(as_bytes(pickle), {}, "data.pkl"); }

std::string encode(const Value& value) {
  VectorSink sink;
  write(value, sink);
  return std::string(as_text(sink.data));
}

// Text of protocol 0 for one tensor, in which each argument can be spoilt.
struct TensorText {
  std::string function = "_rebuild_tensor_v2";
  std::string storage = "ctorch\nFloatStorage\nS'0'\nS'cpu'\nI12\n";
  std::string offset = "I0\n", sizes = "(I3\nI4\nt", strides = "(I4\nI1\nt", requires_grad = "I00\n";
  std::string more;

  std::string text() const {
    return "ctorch._utils\n" + function + "\n((S'storage'\n" + storage + "tQ" + offset + sizes + strides +
           requires_grad + "ccollections\nOrderedDict\n(tR" + more + "tR.";
  }
};

std::string refusal(const TensorText& tensor) {
  try {
    read_torch(tensor.text());
  } catch (const FormatError& error) {
    EXPECT_GE(error.offset(), 0);
    return std::string(error_code_name(error.code())) + ": " + error.summary();
  }
  return "none";
}

TEST(PickleTensor, IsReadWithItsStorage) {
  const Document document = read_torch(TensorText().text());
  const TensorRef& tensor = document.root().tensor();
  EXPECT_EQ(tensor.storage_key, "0");
  EXPECT_EQ(tensor.dtype, DType::kFloat32);
  EXPECT_EQ(tensor.storage_bytes, 48);
  EXPECT_EQ(tensor.storage_offset, 0);
  EXPECT_THAT(tensor.sizes, ElementsAre(3, 4));
  EXPECT_THAT(tensor.strides, ElementsAre(4, 1));
  EXPECT_FALSE(tensor.requires_grad || tensor.conj || tensor.neg || tensor.is_parameter);
}

TEST(PickleTensor, UntypedStorageCountsBytesAndHasItsDTypeBeside) {
  TensorText text;
  text.function = "_rebuild_tensor_v3";
  text.storage = "ctorch.storage\nUntypedStorage\nS'7'\nS'cuda:0'\nI24\n";
  text.more = "ctorch\nuint16\n(S'conj'\nI01\nS'neg'\nI01\nd";
  const Document document = read_torch(text.text());
  EXPECT_EQ(document.root().tensor().dtype, DType::kUInt16);
  EXPECT_EQ(document.root().tensor().storage_bytes, 24);
  EXPECT_TRUE(document.root().tensor().conj && document.root().tensor().neg);
  text.storage = "ctorch.storage\nUntypedStorage\nS'7'\nS'cuda:0'\nI23\n";
  EXPECT_EQ(refusal(text), "out_of_bounds: a tensor in the pickle leaves its storage: element 11 of 11");
}

TEST(PickleTensor, ParameterIsMarked) {
  std::string tensor = TensorText().text();
  tensor.pop_back();
  const Document plain = read_torch("ctorch._utils\n_rebuild_parameter\n(" + tensor + "I01\n(dtR.");
  EXPECT_TRUE(plain.root().tensor().is_parameter);
  EXPECT_TRUE(plain.root().tensor().requires_grad);
  const Document with_state =
      read_torch("ctorch._utils\n_rebuild_parameter_with_state\n(" + tensor + "I00\n(d(dtR.");
  EXPECT_TRUE(with_state.root().tensor().is_parameter);
  EXPECT_FALSE(with_state.root().tensor().requires_grad);
}

TEST(PickleTensor, ViewsStayInsideTheirStorage) {
  TensorText text;
  text.offset = "I1\n";
  EXPECT_EQ(refusal(text), "out_of_bounds: a tensor in the pickle leaves its storage: element 12 of 12");
  text.sizes = "(I2\nI4\nt";
  EXPECT_EQ(refusal(text), "none");
  text.strides = "(I0\nI0\nt";  // expanded
  text.sizes = "(I1000000\nI1000000\nt";
  EXPECT_EQ(refusal(text), "none");
}

TEST(PickleTensor, EmptyTensorsMayHaveAnyStrides) {
  TensorText text;
  text.storage = "ctorch\nFloatStorage\nS'0'\nS'cpu'\nI0\n";
  text.sizes = "(I0\nI9223372036854775807\nt";
  text.strides = "(I9223372036854775807\nI1\nt";
  EXPECT_EQ(refusal(text), "none");
  text.sizes = "(t";
  text.strides = "(t";
  EXPECT_THAT(refusal(text), HasSubstr("leaves its storage: element 0 of 0"))
      << "a 0-d tensor has one element";
}

TEST(PickleTensor, NumbersFromTheFileAreChecked) {
  const auto with = [](std::string TensorText::*field, const std::string& value) {
    TensorText text;
    text.*field = value;
    return refusal(text);
  };
  EXPECT_THAT(with(&TensorText::offset, "I-1\n"),
              HasSubstr("bad_format: a tensor in the pickle has a bad storage offset"));
  EXPECT_THAT(with(&TensorText::offset, "I9223372036854775807\n"), HasSubstr("strides that overflow"));
  EXPECT_THAT(with(&TensorText::sizes, "(I-3\nI4\nt"), HasSubstr("has bad sizes"));
  EXPECT_THAT(with(&TensorText::sizes, "(I3\nI4\nl"), HasSubstr("no tuple of sizes"));
  EXPECT_THAT(with(&TensorText::sizes, "(I3\nt"), HasSubstr("not as many strides as sizes"));
  EXPECT_THAT(with(&TensorText::sizes, "(I4294967296\nI4294967296\nt"), HasSubstr("product overflows"));
  EXPECT_THAT(with(&TensorText::sizes, "(I3\nI1000000000000000000\nt"), HasSubstr("product overflows"))
      << "in bytes";
  EXPECT_THAT(with(&TensorText::sizes, "(L18446744073709551616L\nI4\nt"), HasSubstr("has bad sizes"));
  EXPECT_THAT(with(&TensorText::strides, "(I-4\nI1\nt"), HasSubstr("has bad strides"));
  EXPECT_THAT(with(&TensorText::strides, "(I9223372036854775807\nI1\nt"), HasSubstr("strides that overflow"));
  EXPECT_THAT(with(&TensorText::requires_grad, "N"), HasSubstr("bad requires_grad"));
  EXPECT_THAT(with(&TensorText::more, "(S'odd'\nI01\nd"),
              HasSubstr("unsupported: a tensor in the pickle has a view bit 'odd'"));
  EXPECT_THAT(with(&TensorText::more, "I1\n"), HasSubstr("view bits that are no dict"));
  EXPECT_THAT(with(&TensorText::more, "NN"), HasSubstr("wrong number of arguments"));
  EXPECT_EQ(with(&TensorText::more, "N"), "none");
  std::string many;
  for (int i = 0; i < 65; ++i) many += "I1\n";
  EXPECT_THAT(with(&TensorText::sizes, "(" + many + "t"), HasSubstr("65 dimensions"));
}

TEST(PickleTensor, StoragesAreChecked) {
  const auto with_storage = [](const std::string& storage) {
    TensorText text;
    text.storage = storage;
    return refusal(text);
  };
  EXPECT_THAT(with_storage("ctorch\nFloatStorage\nS'0'\nS'cpu'\nI-1\n"),
              HasSubstr("key or size of a storage"));
  EXPECT_THAT(with_storage("ctorch\nFloatStorage\nI0\nS'cpu'\nI12\n"), HasSubstr("key or size of a storage"));
  EXPECT_THAT(with_storage("ctorch\nFloatStorage\nS'0'\nS'cpu'\nI9223372036854775807\n"),
              HasSubstr("overflows"));
  EXPECT_THAT(with_storage("I0\nS'0'\nS'cpu'\nI12\n"), HasSubstr("class of a storage is none"));
  EXPECT_THAT(with_storage("ctorch.storage\nTypedStorage\nS'0'\nS'cpu'\nI12\n"),
              HasSubstr("class of a storage is none"));
  EXPECT_THAT(with_storage("ctorch\nFloatStorage\nS'0'\nS'cpu'\n"),
              HasSubstr("unsupported: a persistent id"));
  TensorText no_storage;
  no_storage.storage = "ctorch\nFloatStorage\nS'0'\nS'cpu'\nI12\ntQ0(I1\n";
  EXPECT_NE(refusal(no_storage), "none");
}

// ---- Builder and encoder ----

TEST(PickleBuilder, BuildsWhatTheEncoderWritesAndTheReaderReads) {
  Builder b;
  TensorRef ref;
  ref.storage_key = "3";
  ref.dtype = DType::kBFloat16;
  ref.storage_bytes = 20;
  ref.storage_offset = 1;
  ref.sizes = {3, 3};
  ref.strides = {3, 1};
  ref.requires_grad = true;
  const Value* tensor = b.tensor(ref);
  const std::vector<const Value*> parts = {b.none(),        b.boolean(true),       b.integer(-5),
                                           b.floating(0.5), b.string("h\xc3\xa9"), b.bytes("\xff\0"s)};
  const std::vector<const Value*> pairs = {b.string("w"), tensor,         b.string("again"), tensor,
                                           b.string("t"), b.tuple(parts), b.integer(1),      b.list(parts)};
  const Document built = b.finish(b.dict(pairs, "collections OrderedDict"));
  const Document again = read_torch(encode(built.root()));
  EXPECT_EQ(
      to_json(again.root()),
      R"({"$dict": [["w", {"$tensor": {"dtype": "bfloat16", "shape": [3, 3], "nbytes": 18}}], )"
      R"(["again", {"$tensor": {"dtype": "bfloat16", "shape": [3, 3], "nbytes": 18}}], )"
      "[\"t\", {\"$tuple\": [null, true, -5, 0.5, \"h\xc3\xa9\", {\"$bytes\": \"ff00\"}]}], "
      "[1, [null, true, -5, 0.5, \"h\xc3\xa9\", {\"$bytes\": \"ff00\"}]]], \"$class\": \"OrderedDict\"}");
  const TensorRef& tensor_again = again.root().find("w")->tensor();
  EXPECT_EQ(&tensor_again, &again.root().find("again")->tensor()) << "shared";
  EXPECT_EQ(tensor_again.storage_key, "3");
  EXPECT_EQ(tensor_again.storage_bytes, 20);
  EXPECT_EQ(tensor_again.storage_offset, 1);
  EXPECT_THAT(tensor_again.strides, ElementsAre(3, 1));
  EXPECT_TRUE(tensor_again.requires_grad);
}

TEST(PickleBuilder, EqualStringsAreWrittenOnce) {
  Builder b;
  const std::vector<const Value*> items = {b.string("the same text"), b.string("the same text")};
  const std::string pickle = encode(b.finish(b.list(items)).root());
  EXPECT_EQ(pickle.find("the same text"), pickle.rfind("the same text"));
}

TEST(PickleBuilder, CopyOutlivesItsSourceAndRenamesStorages) {
  Builder b;
  const Value* copy = nullptr;
  {
    std::string tensor = TensorText().text();
    tensor.pop_back();
    const Document source =
        read_torch("(S'w'\n" + tensor + "S's'\n(S'storage'\nctorch\nIntStorage\nS'1'\nS'cpu'\nI2\ntQd.");
    copy = b.copy(source.root(), [](std::string_view key) { return "x" + std::string(key); });
  }
  const Document document = b.finish(copy);
  EXPECT_EQ(document.root().find("w")->tensor().storage_key, "x0");
  EXPECT_EQ(document.root().find("s")->text(), "x1");
  EXPECT_EQ(to_json(read_torch(encode(document.root())).root()), to_json(document.root()));
}

TEST(PickleBuilder, CopyKeepsSharingAndCycles) {
  const Document source = read_torch("]q\0(h\0]q\1h\1e."s);
  Builder b;
  const Value* copy = b.copy(source.root());
  const Document document = b.finish(copy);
  EXPECT_EQ(document.root().item(0).item(0).size(), 3);
  EXPECT_EQ(encode(document.root()), encode(source.root()));
}

TEST(PickleEncoder, CyclesAreKept) {
  // t = ([t],): the list leads back to the tuple.
  const Document document = read_torch(
      "]q\0h\0\x85q\1"
      "0h\0h\1a0h\1."s);
  const Document again = read_torch(encode(document.root()));
  ASSERT_EQ(again.root().kind(), Kind::kTuple);
  EXPECT_EQ(&again.root().item(0).item(0).item(0), &again.root().item(0));
}

TEST(PickleEncoder, TensorsOfDTypesWithoutStorageClassAreUntyped) {
  Builder b;
  TensorRef ref;
  ref.storage_key = "0";
  ref.dtype = DType::kFloat8E4M3FN;
  ref.storage_bytes = 6;
  ref.sizes = {2, 3};
  ref.strides = {3, 1};
  ref.neg = true;
  ref.is_parameter = true;
  const std::string pickle = encode(b.finish(b.tensor(ref)).root());
  EXPECT_THAT(pickle, HasSubstr("_rebuild_tensor_v3"));
  EXPECT_THAT(pickle, HasSubstr("UntypedStorage"));
  const Document document = read_torch(pickle);
  EXPECT_EQ(document.root().tensor().dtype, DType::kFloat8E4M3FN);
  EXPECT_EQ(document.root().tensor().storage_bytes, 6);
  EXPECT_TRUE(document.root().tensor().neg && document.root().tensor().is_parameter);
}

TEST(PickleEncoder, RefusesOpaqueValuesByName) {
  Options options;
  options.keep_unknown_globals = true;
  const Document document = read(as_bytes("]cmy\nThing\n)\x81"
                                          "a."),
                                 options, "x");
  try {
    encode(document.root());
    FAIL();
  } catch (const FormatError& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_THAT(error.summary(), HasSubstr("my Thing"));
  }
}

TEST(PickleEncoder, RefusesDeepNesting) {
  Builder b;
  const Value* nested = b.none();
  for (int i = 0; i < 1500; ++i) nested = b.list(std::vector{nested});
  const Document document = b.finish(nested);
  EXPECT_THROW(encode(document.root()), FormatError);
  EXPECT_THROW(to_json(document.root()), FormatError);
}

TEST(PickleEncoder, MetadataObjectsAreWrittenAsObjects) {
  Options options;
  options.profile = Profile::kDcpMetadata;
  const std::string pickle =
      "(ctorch.distributed.checkpoint.metadata\nMetadataIndex\n)\x81}(U\3fqnU\1wU\5indexNubctorch."
      "distributed.checkpoint.metadata\n"
      "_MEM_FORMAT_ENCODING\nK\1\x85Rctorch\nSize\n(K\1K\2K\3K\4t\x85Rcpathlib\nPosixPath\nU\1/U\1a\x86Rt.";
  const Document document = read(as_bytes(pickle), options, "x");
  const std::string written = encode(document.root());
  EXPECT_EQ(to_json(read(as_bytes(written), options, "x").root()), to_json(document.root()));
}

// ---- JSON ----

std::string json_of(std::string_view pickle, const JsonOptions& options = {}) {
  return to_json(read_torch(pickle).root(), options);
}

TEST(PickleJson, FloatsReadLikePythons) {
  Builder b;
  std::vector<const Value*> items;
  for (const double x : {0.1, 1e-5, 1e-4, 1e15, 1e16, 3.14159, -0.0, 100.0, 1e22, 123456789.125, 5e-324})
    items.push_back(b.floating(x));
  items.push_back(b.floating(std::nan("")));
  items.push_back(b.floating(-std::numeric_limits<double>::infinity()));
  EXPECT_EQ(to_json(b.finish(b.list(items)).root()),
            R"([0.1, 1e-05, 0.0001, 1000000000000000.0, 1e+16, 3.14159, -0.0, )"
            R"(100.0, 1e+22, 123456789.125, 5e-324, )"
            R"({"$float": "nan"}, {"$float": "-inf"}])");
}

TEST(PickleJson, IntegersBeyondDoublesAreText) {
  EXPECT_EQ(json_of("(I9007199254740991\nI9007199254740992\nI-9007199254740992\nI9223372036854775808\nl."),
            R"([9007199254740991, {"$int": "9007199254740992"}, {"$int": "-9007199254740992"}, )"
            R"({"$int": "9223372036854775808"}])");
}

TEST(PickleJson, ControlCharactersAreEscaped) {
  EXPECT_EQ(json_of("X\x0b\0\0\0a\"\\\n\x01\x1b\x7f\xc2\x85\xc3\xa9."s),
            "\"a\\\"\\\\\\n\\u0001\\u001b\\u007f\\u0085\xc3\xa9\"");
}

TEST(PickleJson, SetsAreSortedAsPythonSortsTheirJson) {
  // By ASCII text: "\u00e9" sorts before "a", 10 before 9.
  EXPECT_EQ(json_of("\x8f(U\1aX\2\0\0\0\xc3\xa9K\x09K\x0aN\x90."s),
            "{\"$set\": [\"\xc3\xa9\", \"a\", 10, 9, null]}");
}

TEST(PickleJson, NestedPicklesAreShownWhenWanted) {
  JsonOptions nested;
  nested.nested_pickles = true;
  EXPECT_EQ(json_of("C\x0a\x80\4}U\1aK\1s.."s, nested), R"({"$pickle": {"a": 1}})");
  EXPECT_EQ(json_of("C\x0a\x80\4}U\1aK\1s.."s), R"({"$bytes": "80047d5501614b01732e"})");
  EXPECT_EQ(json_of("C\x05\x80\4NN.."s, nested), R"({"$pickle": null})")
      << "what lies below the top is ignored, as in Python";
  EXPECT_EQ(json_of("C\x05\x80\4N..."s, nested), R"({"$bytes": "80044e2e2e"})") << "no whole pickle";
  EXPECT_EQ(json_of("C\x04\x80\4\xff.."s, nested), R"({"$bytes": "8004ff2e"})");
  EXPECT_EQ(json_of("C\x0b\x80\4cos\nabc\n.."s, nested), R"({"$pickle": {"$opaque": "os abc"}})");
}

TEST(PickleJson, IsLimitedInNodesAndText) {
  EXPECT_EQ(json_of("(NNNl.", {.max_nodes = 4}), "[null, null, null]");
  EXPECT_THROW(json_of("(NNNl.", {.max_nodes = 3}), FormatError);
  EXPECT_THROW(json_of("B\0\1\0\0"s + std::string(256, 'x') + ".", {.max_nodes = 1}), FormatError);
  // 2^40 nodes, few bytes
  std::string shared = "N\x85";
  for (int i = 0; i < 40; ++i) shared += "q\1h\1\x86";
  EXPECT_THROW(json_of(shared + "."), FormatError);
  EXPECT_THROW(json_of("]q\0h\0a."s), FormatError) << "a cycle";
}

TEST(PickleJson, HashesOfTensorsAreTheCallersAffair) {
  JsonOptions options;
  options.tensor_sha256 = [](const TensorRef& ref) { return "hash of " + std::string(ref.storage_key); };
  EXPECT_EQ(json_of(TensorText().text(), options),
            R"({"$tensor": {"dtype": "float32", "shape": [3, 4], "nbytes": 48, "sha256": "hash of 0"}})");
}

TEST(PickleJson, KeysThatLookLikeTagsMakeADictOfPairs) {
  EXPECT_EQ(json_of("}U\2$xK\1s."), R"({"$dict": [["$x", 1]], "$class": "dict"})");
}

}  // namespace
}  // namespace milepost::pickle
