#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "format/torch_zip_test_source.h"
#include "milepost/base/error.h"
#include "milepost/format/torch_zip.h"

namespace milepost::torch_zip {
namespace {

using namespace std::string_literals;
using pickle::Builder;
using pickle::Value;
using testing::ElementsAre;
using testing::HasSubstr;

// The bytes of a file that holds `root`, with storages of the given sizes filled with their index.
ByteVector pth_bytes(const Value& root, const std::vector<int64_t>& storage_bytes) {
  std::unique_ptr<FileImage> image = pth_image("model.pth", "model", root, storage_bytes);
  EXPECT_EQ(image->name(), "model.pth");
  ByteVector out;
  std::vector<uint32_t> crcs(storage_bytes.size(), 0xdeadbeef);
  for (int64_t i = 0; i < image->num_parts(); ++i) {
    FileImage::Part part = image->part(i);
    EXPECT_EQ(part.offset, static_cast<int64_t>(out.size()));
    if (part.payload < 0) {
      image->render(i, crcs, out);
    } else {
      ByteVector payload(static_cast<size_t>(part.length), static_cast<std::byte>(part.payload + 1));
      EXPECT_EQ(part.length, storage_bytes[static_cast<size_t>(part.payload)]);
      EXPECT_EQ(part.offset % 64, 0);
      crcs[static_cast<size_t>(part.payload)] = crc32(0, payload);
      out.insert(out.end(), payload.begin(), payload.end());
    }
    EXPECT_EQ(part.offset + part.length, static_cast<int64_t>(out.size()));
  }
  EXPECT_EQ(image->size(), static_cast<int64_t>(out.size()));
  return out;
}

// A file with `pickle` as its data.pkl and two storages of 48 bytes.
MemorySource pth_of_pickle(std::string pickle) {
  return {archive_of({{"m/data.pkl", std::move(pickle)},
                      {"m/data/0", std::string(48, 'a')},
                      {"m/data/1", std::string(48, 'b')},
                      {"m/version", "3"}}),
          "m.pth"};
}

FormatError refusal(const ByteSource& file) {
  try {
    read_pth(file, "m.pth");
  } catch (const FormatError& error) {
    EXPECT_EQ(error.path(), file.name());
    return error;
  }
  ADD_FAILURE() << "was accepted";
  return {ErrorCode::kIo, ""};
}

pickle::TensorRef ref(std::string_view key, std::vector<int64_t> sizes, std::vector<int64_t> strides,
                      int64_t offset = 0) {
  pickle::TensorRef tensor;
  tensor.storage_key = key;
  tensor.dtype = DType::kFloat32;
  tensor.storage_bytes = 48;
  tensor.storage_offset = offset;
  tensor.sizes = std::move(sizes);
  tensor.strides = std::move(strides);
  return tensor;
}

const Location& location_of(const PthFile& pth, std::string_view name) {
  return pth.catalog.chunk_location(
      pth.catalog.tensors()[static_cast<size_t>(*pth.catalog.find_tensor(name))].first_chunk);
}

TEST(PthFile, LocatesTheExactBytesOfRowMajorViews) {
  Builder b;
  std::vector<const Value*> entries = {b.string("whole"), b.tensor(ref("0", {3, 4}, {4, 1})),
                                       b.string("rows"),  b.tensor(ref("0", {2, 4}, {4, 1}, 4)),
                                       b.string("one"),   b.tensor(ref("1", {}, {}, 5)),
                                       b.string("none"),  b.tensor(ref("1", {0, 3}, {3, 1}, 7))};
  pickle::Document document = b.finish(b.dict(entries));
  MemorySource file(pth_bytes(document.root(), {48, 48}), "model.pth");
  PthFile pth = read_pth(file, "model.pth");
  ASSERT_EQ(pth.catalog.files().size(), 1U);
  EXPECT_EQ(pth.catalog.files()[0].size_bytes, file.size());
  const Location& whole = location_of(pth, "whole");
  EXPECT_EQ(whole.length, 48);
  EXPECT_EQ(whole.layout, Location::kRowMajor);
  EXPECT_EQ(file.data()[whole.offset], std::byte{1});
  EXPECT_EQ(location_of(pth, "rows").offset, whole.offset + 16);
  EXPECT_EQ(location_of(pth, "rows").length, 32);
  EXPECT_EQ(location_of(pth, "one").length, 4);
  EXPECT_EQ(file.data()[location_of(pth, "one").offset], std::byte{2});
  EXPECT_EQ(location_of(pth, "none").length, 0);
  EXPECT_TRUE(pth.catalog.layouts().empty());
}

TEST(PthFile, GivesOtherViewsALayoutAndTheBytesThatTheySpan) {
  Builder b;
  std::vector<const Value*> entries = {b.string("t"), b.tensor(ref("0", {4, 2}, {1, 4}, 4)),
                                       b.string("column"), b.tensor(ref("0", {3}, {4}, 1))};
  pickle::Document document = b.finish(b.dict(entries));
  MemorySource file(pth_bytes(document.root(), {48, 48}), "model.pth");
  PthFile pth = read_pth(file, "model.pth");
  const Location& t = location_of(pth, "t");
  EXPECT_EQ(t.length, 32);
  ASSERT_GE(t.layout, Location::kFirstLayout);
  EXPECT_EQ(pth.catalog.layouts()[t.layout - Location::kFirstLayout],
            (StorageLayout{0, Dims{1, 4}, false, false, false}));
  const Location& column = location_of(pth, "column");
  EXPECT_EQ(column.offset, t.offset - 12);
  EXPECT_EQ(column.length, 36);
}

TEST(PthFile, FlattensAsTorchDoes) {
  Builder b;
  const Value* t = b.tensor(ref("0", {12}, {1}));
  const Value* one = b.integer(1);
  auto list = [&](std::vector<const Value*> items) { return b.list(items); };
  auto dict = [&](std::vector<const Value*> entries) { return b.dict(entries); };
  const Value* root = dict({
      b.string("a"),
      dict({b.string("b"), one, b.integer(7), t, b.boolean(true), one, b.none(), one}),
      b.string("empty"),
      dict({}),
      b.string("plain"),
      list({one, list({one})}),
      b.string("deep"),
      list({one, list({list({t})})}),
      b.string("dicts"),
      list({dict({}), one}),
      b.string("pair"),
      b.tuple(std::vector<const Value*>{t, one}),
      b.string("x.y"),
      one,
  });
  pickle::Document document = b.finish(root);
  MemorySource file(pth_bytes(document.root(), {48}), "model.pth");
  PthFile pth = read_pth(file, "model.pth");
  EXPECT_THAT(pth.catalog.names_in_order(), ElementsAre("a.b", "a.7", "a.True", "a.None", "plain", "deep.0",
                                                        "deep.1.0.0", "dicts.1", "pair", "x.y"));
  EXPECT_EQ(pth.catalog.path("deep.1.0.0"), (KeyPath{"deep", int64_t{1}, int64_t{0}, int64_t{0}}));
  EXPECT_EQ(pth.catalog.path("a.7"), (KeyPath{"a", "7"}));
  EXPECT_EQ(pth.catalog.path("x.y"), (KeyPath{"x.y"}));
  ASSERT_EQ(pth.object_values.size(), pth.catalog.objects().size());
  EXPECT_EQ(pth.object_values[static_cast<size_t>(*pth.catalog.find_object("pair"))]->kind(),
            pickle::Kind::kTuple);
  EXPECT_EQ(pth.catalog.objects()[0].location.file, Location::kNoFile);
}

TEST(PthFile, RefusesTwoEntriesWithOneKey) {
  MemorySource file = pth_of_pickle("\x80\x02}(K\x01K\x07X\x01" +
                                    "\0\0\0"
                                    "1K\x08u."s);
  FormatError error = refusal(file);
  EXPECT_EQ(error.code(), ErrorCode::kDuplicate);
  EXPECT_EQ(error.key(), "1");
}

TEST(PthFile, RefusesWhatIsNoDict) {
  FormatError list = refusal(pth_of_pickle("\x80\x02]."));
  EXPECT_EQ(list.code(), ErrorCode::kUnsupported);
  EXPECT_THAT(list.what(), HasSubstr("holds a list, not a state dict"));
  FormatError module =
      refusal(pth_of_pickle("\x80\x02"
                            "cmy.models\nNet\n)\x81."));
  EXPECT_EQ(module.code(), ErrorCode::kUnsupported);
  EXPECT_THAT(module.what(), HasSubstr("my.models Net"));
  EXPECT_THAT(module.what(), HasSubstr("state_dict"));
}

TEST(PthFile, KeepsEntriesThatNameUnknownClassesAsOpaque) {
  MemorySource file = pth_of_pickle("\x80\x02}(X\x01" +
                                    "\0\0\0"
                                    "acmy.models\nNet\n)\x81X\x01\0\0\0"
                                    "bK\x08u."s);
  PthFile pth = read_pth(file, "m.pth");
  ASSERT_EQ(pth.object_values.size(), 2U);
  EXPECT_EQ(pth.object_values[0]->kind(), pickle::Kind::kOpaque);
  EXPECT_EQ(pth.object_values[1]->as_int(), 8);
}

TEST(PthFile, RefusesKeysThatAreNoText) {
  FormatError error = refusal(pth_of_pickle("\x80\x02}(]K\x07u."));
  EXPECT_THROW(throw error, FormatError);
  FormatError tuple = refusal(pth_of_pickle("\x80\x02}()K\x07u."));
  EXPECT_EQ(tuple.code(), ErrorCode::kUnsupported);
  EXPECT_THAT(tuple.what(), HasSubstr("a tuple for a key"));
}

TEST(PthFile, NamesTheEntryWhoseStorageIsWrong) {
  Builder b;
  std::vector<const Value*> entries = {b.string("w"), b.tensor(ref("0", {3, 4}, {4, 1}))};
  pickle::Document document = b.finish(b.dict(entries));
  MemorySource small(pth_bytes(document.root(), {44}), "model.pth");
  FormatError error = refusal(small);
  EXPECT_EQ(error.key(), "w");
  EXPECT_THAT(error.what(), HasSubstr("has 44 bytes, but the pickle says 48"));
  MemorySource absent(pth_bytes(document.root(), {}), "model.pth");
  EXPECT_THAT(refusal(absent).what(), HasSubstr("data/0"));
}

TEST(PthFile, RefusesStructuresThatUnfoldWithoutEnd) {
  // d = {}; d["k"] = d
  MemorySource cycle = pth_of_pickle("\x80\x02}q\x01X\x01" + "\0\0\0kh\x01s."s);
  EXPECT_EQ(refusal(cycle).code(), ErrorCode::kTooLarge);
  // Thirty dicts, each holding the one before twice: 2^30 entries.
  std::string lattice = "\x80\x02}q\0"s;
  for (int i = 0; i < 30; ++i) {
    lattice += "}(X\1\0\0\0ah"s + static_cast<char>(i) + "X\1\0\0\0bh"s + static_cast<char>(i) + "uq" +
               static_cast<char>(i + 1);
  }
  MemorySource wide = pth_of_pickle(lattice + ".");
  EXPECT_EQ(refusal(wide).code(), ErrorCode::kTooLarge);
}

TEST(PthFile, TakesAListThatHoldsItselfAsOneEntry) {
  // l = []; l.append(l); {"k": l}
  MemorySource file = pth_of_pickle("\x80\x02}X\x01" +
                                    "\0\0\0k]q\x01h\x01"
                                    "as."s);
  PthFile pth = read_pth(file, "m.pth");
  EXPECT_THAT(pth.catalog.names_in_order(), ElementsAre("k"));
}

TEST(PthFile, RefusesEveryTruncationAndSurvivesEveryFlippedByte) {
  Builder b;
  std::vector<const Value*> entries = {b.string("w"), b.tensor(ref("0", {3, 4}, {4, 1})), b.string("n"),
                                       b.integer(3)};
  pickle::Document document = b.finish(b.dict(entries));
  ByteVector whole = pth_bytes(document.root(), {48});
  for (size_t size = 0; size < whole.size(); ++size) {
    MemorySource cut(Bytes(whole).first(size), "cut.pth");
    EXPECT_THROW(read_pth(cut, "x"), FormatError) << size;
  }
  for (size_t i = 0; i < whole.size(); ++i) {
    ByteVector damaged = whole;
    damaged[i] ^= std::byte{0xff};
    MemorySource file(std::move(damaged), "damaged.pth");
    try {
      read_pth(file, "x");
    } catch (const FormatError&) {
    }
  }
}

TEST(PthImage, PutsEmptyStoragesIntoTheirPlace) {
  Builder b;
  pickle::Document document = b.finish(b.dict({}));
  MemorySource file(pth_bytes(document.root(), {0, 10, 0}), "model.pth");
  std::vector<zip::Record> records = zip::read_directory(file);
  ASSERT_EQ(records.size(), 9U);
  EXPECT_EQ(records[4].name, "model/data/0");
  EXPECT_EQ(records[4].crc32, 0U);
  for (zip::Record& record : records) zip::read_record(file, record, 1000, true);
}

TEST(ObjectItem, HoldsObjectsWithTensorsInside) {
  Builder b;
  std::vector<const Value*> items = {b.tensor(ref("0", {12}, {1})), b.integer(9)};
  pickle::Document document = b.finish(b.tuple(items));
  ByteVector payload(48, std::byte{4});
  ByteVector bytes = object_item(document.root(), {{"0", payload}});
  EXPECT_EQ(bytes.size() % 64, 0U);
  auto item = std::make_shared<MemorySource>(std::move(bytes), "item");
  Object object = read_object(*item, false);
  EXPECT_THAT(object.storage_keys, ElementsAre("0"));
  EXPECT_EQ(object.document.root().item(1).as_int(), 9);
  EXPECT_EQ(read_all(*open_storage(item, "0"), 100), payload);
  EXPECT_THROW(open_storage(item, "1"), FormatError);
}

}  // namespace
}  // namespace milepost::torch_zip
