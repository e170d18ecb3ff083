#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "milepost/base/error.h"
#include "milepost/format/safetensors.h"

namespace milepost::safetensors {
namespace {

using testing::ElementsAre;

std::string header_text(const Layout& layout) {
  ByteVector bytes;
  layout.image->render(0, {}, bytes);
  return std::string(as_text(bytes).substr(8));
}

ErrorCode refusal(const std::vector<OutTensor>& tensors) {
  try {
    file_layout("f", tensors, {});
  } catch (const FormatError& error) {
    EXPECT_FALSE(error.key().empty());
    return error.code();
  }
  return ErrorCode::kIo;
}

// The image with payload p filled by the byte p.
ByteVector rendered(const FileImage& image) {
  ByteVector bytes;
  for (int64_t i = 0; i < image.num_parts(); ++i) {
    const FileImage::Part part = image.part(i);
    EXPECT_EQ(part.offset, static_cast<int64_t>(bytes.size()));
    if (part.payload < 0) {
      image.render(i, {}, bytes);
    } else {
      bytes.resize(bytes.size() + static_cast<size_t>(part.length), std::byte(part.payload));
    }
    EXPECT_EQ(part.offset + part.length, static_cast<int64_t>(bytes.size()));
  }
  EXPECT_EQ(image.size(), static_cast<int64_t>(bytes.size()));
  return bytes;
}

// What safetensors 0.8 writes for two 2 x 2 tensors of each of its dtypes, given in another order.
TEST(SafetensorsLayout, OrdersTensorsAsTheReferenceWriter) {
  const char* kExpected =
      R"({"__metadata__":{"k":"v"},"a_U64":{"dtype":"U64","shape":[2,2],"data_offsets":[0,32]},)"
      R"("b_U64":{"dtype":"U64","shape":[2,2],"data_offsets":[32,64]},)"
      R"("a_I64":{"dtype":"I64","shape":[2,2],"data_offsets":[64,96]},)"
      R"("b_I64":{"dtype":"I64","shape":[2,2],"data_offsets":[96,128]},)"
      R"("a_F64":{"dtype":"F64","shape":[2,2],"data_offsets":[128,160]},)"
      R"("b_F64":{"dtype":"F64","shape":[2,2],"data_offsets":[160,192]},)"
      R"("a_C64":{"dtype":"C64","shape":[2,2],"data_offsets":[192,224]},)"
      R"("b_C64":{"dtype":"C64","shape":[2,2],"data_offsets":[224,256]},)"
      R"("a_F32":{"dtype":"F32","shape":[2,2],"data_offsets":[256,272]},)"
      R"("b_F32":{"dtype":"F32","shape":[2,2],"data_offsets":[272,288]},)"
      R"("a_U32":{"dtype":"U32","shape":[2,2],"data_offsets":[288,304]},)"
      R"("b_U32":{"dtype":"U32","shape":[2,2],"data_offsets":[304,320]},)"
      R"("a_I32":{"dtype":"I32","shape":[2,2],"data_offsets":[320,336]},)"
      R"("b_I32":{"dtype":"I32","shape":[2,2],"data_offsets":[336,352]},)"
      R"("a_BF16":{"dtype":"BF16","shape":[2,2],"data_offsets":[352,360]},)"
      R"("b_BF16":{"dtype":"BF16","shape":[2,2],"data_offsets":[360,368]},)"
      R"("a_F16":{"dtype":"F16","shape":[2,2],"data_offsets":[368,376]},)"
      R"("b_F16":{"dtype":"F16","shape":[2,2],"data_offsets":[376,384]},)"
      R"("a_U16":{"dtype":"U16","shape":[2,2],"data_offsets":[384,392]},)"
      R"("b_U16":{"dtype":"U16","shape":[2,2],"data_offsets":[392,400]},)"
      R"("a_I16":{"dtype":"I16","shape":[2,2],"data_offsets":[400,408]},)"
      R"("b_I16":{"dtype":"I16","shape":[2,2],"data_offsets":[408,416]},)"
      R"("a_F8_E5M2FNUZ":{"dtype":"F8_E5M2FNUZ","shape":[2,2],"data_offsets":[416,420]},)"
      R"("b_F8_E5M2FNUZ":{"dtype":"F8_E5M2FNUZ","shape":[2,2],"data_offsets":[420,424]},)"
      R"("a_F8_E4M3FNUZ":{"dtype":"F8_E4M3FNUZ","shape":[2,2],"data_offsets":[424,428]},)"
      R"("b_F8_E4M3FNUZ":{"dtype":"F8_E4M3FNUZ","shape":[2,2],"data_offsets":[428,432]},)"
      R"("a_F8_E8M0":{"dtype":"F8_E8M0","shape":[2,2],"data_offsets":[432,436]},)"
      R"("b_F8_E8M0":{"dtype":"F8_E8M0","shape":[2,2],"data_offsets":[436,440]},)"
      R"("a_F8_E4M3":{"dtype":"F8_E4M3","shape":[2,2],"data_offsets":[440,444]},)"
      R"("b_F8_E4M3":{"dtype":"F8_E4M3","shape":[2,2],"data_offsets":[444,448]},)"
      R"("a_F8_E5M2":{"dtype":"F8_E5M2","shape":[2,2],"data_offsets":[448,452]},)"
      R"("b_F8_E5M2":{"dtype":"F8_E5M2","shape":[2,2],"data_offsets":[452,456]},)"
      R"("a_I8":{"dtype":"I8","shape":[2,2],"data_offsets":[456,460]},)"
      R"("b_I8":{"dtype":"I8","shape":[2,2],"data_offsets":[460,464]},)"
      R"("a_U8":{"dtype":"U8","shape":[2,2],"data_offsets":[464,468]},)"
      R"("b_U8":{"dtype":"U8","shape":[2,2],"data_offsets":[468,472]},)"
      R"("a_F4":{"dtype":"F4","shape":[2,4],"data_offsets":[472,476]},)"
      R"("b_F4":{"dtype":"F4","shape":[2,4],"data_offsets":[476,480]},)"
      R"("a_BOOL":{"dtype":"BOOL","shape":[2,2],"data_offsets":[480,484]},)"
      R"("b_BOOL":{"dtype":"BOOL","shape":[2,2],"data_offsets":[484,488]}})";
  std::vector<OutTensor> tensors;
  for (int i = 0; i < kNumDTypes; ++i) {
    const DTypeInfo& info = dtype_info(static_cast<DType>(i));
    if (info.safetensors.empty() || !info.in_torch) continue;
    tensors.push_back({"b_" + std::string(info.safetensors), info.dtype, {2, 2}});
    tensors.push_back({"a_" + std::string(info.safetensors), info.dtype, {2, 2}});
  }
  ASSERT_EQ(tensors.size(), 40u);
  const Layout layout = file_layout("f", tensors, {{"k", "v"}});
  std::string expected = kExpected;
  expected.resize((expected.size() + 7) / 8 * 8, ' ');
  EXPECT_EQ(header_text(layout), expected);
}

TEST(SafetensorsLayout, WritesStringsAsTheReferenceWriter) {
  const Layout layout = file_layout("f", {}, {{"k", "v\u00e9\"\\\n\x01\x7f/\x1f\b\f\r\t\u2028\U0001f600"}});
  EXPECT_THAT(
      header_text(layout),
      testing::StartsWith("{\"__metadata__\":{\"k\":\"v\u00e9\\\"\\\\\\n\\u0001\x7f/\\u001f\\b\\f\\r\\t"
                          "\u2028\U0001f600\"}}"));
}

TEST(SafetensorsLayout, PadsTheHeaderToEightBytes) {
  EXPECT_EQ(header_text(file_layout("f", {}, {})), "{}      ");
  for (size_t n = 1; n < 10; ++n) {
    const Layout layout = file_layout("f", {{std::string(n, 'a'), DType::kFloat32, {0}}}, {});
    EXPECT_EQ(layout.image->part(0).length % 8, 0);
    EXPECT_LT(header_text(layout).size() - header_text(layout).find_last_of('}'), 9u);
  }
}

TEST(SafetensorsLayout, DescribesAFileThatReadsBack) {
  const std::vector<OutTensor> tensors = {
      {"bytes", DType::kUInt8, {3}},   {"none", DType::kFloat32, {0, 3}},
      {"scalar", DType::kFloat64, {}}, {"f4", DType::kFloat4E2M1FNx2, {2, 3}},
      {"f6", DType::kFloat6E3M2, {8}}, {"q\"\u4e2d", DType::kBool, {1}},
  };
  const Layout layout = file_layout("out.safetensors", tensors, {{"format", "pt"}});
  EXPECT_EQ(layout.image->name(), "out.safetensors");
  EXPECT_FALSE(layout.image->wants_crc());
  EXPECT_EQ(layout.image->num_parts(), 7);
  EXPECT_THAT(layout.order, ElementsAre(2, 1, 0, 4, 3, 5));

  const Header header = read_header(MemorySource(rendered(*layout.image), "f"));
  EXPECT_EQ(header.metadata.at("format"), "pt");
  ASSERT_EQ(header.entries.size(), tensors.size());
  for (size_t p = 0; p < layout.order.size(); ++p) {
    const OutTensor& tensor = tensors[static_cast<size_t>(layout.order[p])];
    const FileImage::Part part = layout.image->part(static_cast<int64_t>(p) + 1);
    const auto entry = std::find_if(header.entries.begin(), header.entries.end(),
                                    [&](const Entry& e) { return e.name == tensor.name; });
    ASSERT_NE(entry, header.entries.end());
    EXPECT_EQ(part.payload, static_cast<int64_t>(p));
    EXPECT_EQ(entry->offset, part.offset);
    EXPECT_EQ(entry->length, part.length);
    EXPECT_EQ(entry->dtype, tensor.dtype);
    EXPECT_EQ(entry->shape, tensor.shape);
  }
}

TEST(SafetensorsLayout, RefusesWhatTheFormatCannotHold) {
  EXPECT_EQ(refusal({{"w", DType::kComplex128, {1}}}), ErrorCode::kUnsupported);
  EXPECT_EQ(refusal({{"w", DType::kComplex32, {1}}}), ErrorCode::kUnsupported);
  EXPECT_EQ(refusal({{"__metadata__", DType::kBool, {1}}}), ErrorCode::kUnsupported);
  EXPECT_EQ(refusal({{"\xff", DType::kBool, {1}}}), ErrorCode::kUnsupported);
  EXPECT_EQ(refusal({{"\xed\xa0\x80", DType::kBool, {1}}}), ErrorCode::kUnsupported);
  EXPECT_EQ(refusal({{"w", DType::kFloat4E2M1FNx2, {}}}), ErrorCode::kUnsupported);
  EXPECT_EQ(refusal({{"w", DType::kFloat6E2M3, {3}}}), ErrorCode::kTooLarge);
  EXPECT_EQ(refusal({{"w", DType::kBool, {int64_t{1} << 62, 4}}}), ErrorCode::kTooLarge);
  EXPECT_EQ(refusal({{"w", DType::kBool, {1}}, {"w", DType::kInt8, {1}}}), ErrorCode::kDuplicate);
  EXPECT_THROW(file_layout("f", {}, {{"k", "\xff"}}), FormatError);
  EXPECT_THROW(file_layout("f", {{std::string(kMaxHeaderBytes, 'n'), DType::kBool, {1}}}, {}), FormatError);
}

// Files of the reference library whose metadata is small enough for its order not to matter.
TEST(SafetensorsLayout, EqualsTheHeadersOfTheFixtures) {
  int compared = 0;
  for (const char* folder : {"hf_single", "hf_sharded", "hf_fp8"}) {
    for (const auto& item :
         std::filesystem::directory_iterator(MILEPOST_TEST_DATA "/dcp/" + std::string(folder) + "/ckpt")) {
      if (item.path().extension() != ".safetensors") continue;
      std::ifstream file(item.path(), std::ios::binary);
      const std::string bytes(std::istreambuf_iterator<char>(file), {});
      const Header header = read_header(MemorySource(as_bytes(bytes), item.path()));
      std::vector<OutTensor> tensors;
      for (const Entry& entry : header.entries)
        tensors.insert(tensors.begin(), {entry.name, entry.dtype, entry.shape});
      const Layout layout = file_layout("f", tensors, header.metadata);
      EXPECT_EQ(header_text(layout), bytes.substr(8, static_cast<size_t>(header.header_bytes) - 8))
          << item.path();
      ++compared;
    }
  }
  EXPECT_EQ(compared, 6);
}

}  // namespace
}  // namespace milepost::safetensors
