#include "milepost/engine/derived.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "engine/test_memory.h"
#include "milepost/base/error.h"
#include "milepost/engine/reader.h"
#include "milepost/tensor/copy.h"

namespace milepost {
namespace {

std::vector<float> counted(int64_t count, float start = 0) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = start + static_cast<float>(i);
  return values;
}

std::vector<float> whole(const std::shared_ptr<const Checkpoint>& checkpoint, int64_t tensor) {
  const Catalog::Tensor& info = checkpoint->catalog().tensors()[static_cast<size_t>(tensor)];
  const int64_t count = num_elements(info.shape), size = dtype_size(info.dtype);
  std::vector<std::byte> raw(static_cast<size_t>(count * size));
  TensorReader(checkpoint).read_linear(tensor, Box::whole(info.shape), 0, count * size, raw.data());
  std::vector<float> values(static_cast<size_t>(count));
  cast(reinterpret_cast<std::byte*>(values.data()), DType::kFloat32, raw.data(), info.dtype, count);
  return values;
}

TensorPart part_of(int64_t source, int64_t first_row, int64_t rows) {
  TensorPart part;
  part.source = source;
  part.first_row = first_row;
  part.num_rows = rows;
  return part;
}

// Tensors of every kind of part, with the values that they must have.
struct Example {
  Example() {
    MemoryCheckpoint memory;
    memory.tensor("a", DType::kFloat32, Dims{6, 4}, counted(24));
    memory.tensor("b", DType::kFloat32, Dims{6, 4}, counted(24, 100));
    memory.tensor("stack", DType::kFloat32, Dims{3, 2, 5}, counted(30));
    memory.tensor("half", DType::kBFloat16, Dims{6, 4}, std::vector<uint16_t>(24, 0x3f80));
    std::vector<uint8_t> codes(130 * 150);
    for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(i % 120);
    memory.tensor("codes", DType::kFloat8E4M3FN, Dims{130, 150}, codes);
    memory.tensor("codes_scale", DType::kFloat32, Dims{2, 2}, std::vector<float>{1, 2, 4, 8});
    memory.tensor(
        "nibbles", DType::kUInt8, Dims{3, 2, 4},
        std::vector<uint8_t>{0x10, 0x32, 0x54, 0x76, 0x98, 0xba, 0xdc, 0xfe, 0x10, 0x32, 0x54, 0x76,
                             0x98, 0xba, 0xdc, 0xfe, 0x10, 0x32, 0x54, 0x76, 0x98, 0xba, 0xdc, 0xfe});
    memory.tensor("exponents", DType::kUInt8, Dims{3, 2}, std::vector<uint8_t>{127, 128, 126, 127, 127, 130});
    memory.tensor("scalar", DType::kFloat32, Dims{}, std::vector<float>{7});
    source = memory.open();

    KeyMap map;
    map.add("renamed", DType::kFloat32, Dims{6, 4}, {part_of(0, 0, 6)});
    expected.push_back(counted(24));
    map.add("stacked", DType::kFloat32, Dims{2, 6, 4}, {part_of(0, 0, 1), part_of(1, 1, 1)});
    expected.push_back(counted(24));
    for (float value : counted(24, 100)) expected.back().push_back(value);
    TensorPart selected = part_of(2, 0, 2);
    selected.origin = {1, 0, 0};
    map.add("selected", DType::kFloat32, Dims{2, 5}, {selected});
    expected.push_back(counted(10, 10));
    TensorPart rows = part_of(0, 0, 6);
    rows.order = {6, 2};
    map.add("reordered", DType::kFloat32, Dims{6, 4}, {rows});
    expected.emplace_back();
    for (float row : {0, 2, 4, 1, 3, 5}) {
      for (float value : counted(4, row * 4)) expected.back().push_back(value);
    }
    map.add("mixed", DType::kFloat32, Dims{12, 4}, {part_of(3, 0, 6), part_of(1, 6, 6)});
    expected.emplace_back(24, 1.0F);
    for (float value : counted(24, 100)) expected.back().push_back(value);
    TensorPart scaled = part_of(4, 0, 130);
    scaled.values = TensorPart::Values::kBlockScaled;
    scaled.scales = 5;
    map.add("dequantised", DType::kFloat32, Dims{130, 150}, {scaled});
    expected.emplace_back();
    for (size_t r = 0; r < 130; ++r) {
      for (size_t c = 0; c < 150; ++c) {
        const auto code = static_cast<std::byte>(codes[r * 150 + c]);
        const auto value = static_cast<float>(element_as_double(&code, DType::kFloat8E4M3FN));
        expected.back().push_back(value * (r < 128 ? 1.0F : 4.0F) * (c < 128 ? 1.0F : 2.0F));
      }
    }
    TensorPart packed = part_of(6, 0, 3);
    packed.values = TensorPart::Values::kMxfp4;
    packed.scales = 7;
    map.add("unpacked", DType::kFloat32, Dims{3, 16}, {packed});
    expected.emplace_back();
    const float steps[] = {0, .5, 1, 1.5, 2, 3, 4, 6};
    for (float scale : {1.0F, 2.0F, .5F, 1.0F, 1.0F, 8.0F}) {
      const float sign = expected.back().size() / 8 % 2 == 0 ? 1 : -1;
      for (float step : steps) expected.back().push_back(sign * step * scale);
    }
    TensorPart zeros = part_of(-1, 0, 6);
    zeros.values = TensorPart::Values::kZeros;
    map.add("zeros", DType::kFloat32, Dims{6}, {zeros});
    expected.emplace_back(6, 0.0F);
    map.add("scalar", DType::kFloat32, Dims{}, {part_of(8, 0, 1)});
    expected.push_back({7});
    TensorPart random = part_of(-1, 0, 9);
    random.values = TensorPart::Values::kRandom;
    map.add("random", DType::kBFloat16, Dims{9, 5, 7}, {random});
    derived = derive(source, std::move(map));
    expected.push_back(whole(derived, static_cast<int64_t>(expected.size())));
  }

  std::shared_ptr<const Checkpoint> source, derived;
  std::vector<std::vector<float>> expected;
};

TEST(Derived, GivesTheValuesThatItsPartsSay) {
  const Example example;
  for (size_t t = 0; t < example.expected.size(); ++t) {
    EXPECT_EQ(whole(example.derived, static_cast<int64_t>(t)), example.expected[t])
        << example.derived->catalog().tensors()[t].name;
  }
}

TEST(Derived, GivesAnyRangeOfAnyBox) {
  const Example example;
  std::mt19937 random(1);
  const auto below = [&](int64_t limit) {
    return std::uniform_int_distribution<int64_t>(0, limit - 1)(random);
  };
  TensorReader reader(example.derived);
  for (int round = 0; round < 3000; ++round) {
    const auto t = static_cast<size_t>(below(static_cast<int64_t>(example.expected.size())));
    const Catalog::Tensor& info = example.derived->catalog().tensors()[t];
    const int64_t size = dtype_size(info.dtype);
    Box box;
    for (int64_t length : info.shape) {
      box.offsets.push_back(below(length));
      box.sizes.push_back(1 + below(length - box.offsets.back()));
    }
    const int64_t begin = below(box.num_elements()), end = begin + 1 + below(box.num_elements() - begin);
    std::vector<std::byte> raw(static_cast<size_t>((end - begin) * size));
    reader.read_linear(static_cast<int64_t>(t), box, begin * size, end * size, raw.data());
    for (int64_t i = begin; i < end; ++i) {
      int64_t rest = i, index = 0, scale = 1;
      for (size_t d = box.sizes.size(); d-- > 0;) {
        index += (box.offsets[d] + rest % box.sizes[d]) * scale;
        rest /= box.sizes[d];
        scale *= info.shape[d];
      }
      ASSERT_EQ(static_cast<float>(element_as_double(raw.data() + (i - begin) * size, info.dtype)),
                example.expected[t][static_cast<size_t>(index)])
          << info.name << ' ' << box_text(box) << " element " << i;
    }
  }
}

TEST(Derived, FillsStridedDestinations) {
  const Example example;
  std::vector<float> columns(24);
  // Transposed: the row of the tensor becomes the column of the destination.
  TensorReader(example.derived)
      .read(3, Box::whole(Dims{6, 4}), reinterpret_cast<std::byte*>(columns.data()), Dims{4, 24});
  for (size_t r = 0; r < 6; ++r) {
    for (size_t c = 0; c < 4; ++c) EXPECT_EQ(columns[c * 6 + r], example.expected[3][r * 4 + c]);
  }
}

TEST(Derived, ShowsMemoryWhereItIsPlain) {
  const Example example;
  TensorReader reader(example.derived);
  const Box box = Box::whole(Dims{2, 6, 4});
  const auto [memory, available] = reader.view_linear(1, box, 24 * 4);
  ASSERT_NE(memory, nullptr);
  EXPECT_EQ(available, 24 * 4);
  EXPECT_EQ(*reinterpret_cast<const float*>(memory), 100.0F);
  EXPECT_EQ(reader.view_linear(3, Box::whole(Dims{6, 4}), 0).first, nullptr);
}

TEST(Derived, QuantisesToCodesThatGiveTheSameCodesAgain) {
  MemoryCheckpoint memory;
  std::vector<uint16_t> values;
  std::mt19937 random(2);
  for (int i = 0; i < 300 * 200; ++i)
    values.push_back(static_cast<uint16_t>(0x3a00 + random() % 0x600 + (random() % 2) * 0x8000));
  memory.tensor("w", DType::kBFloat16, Dims{300, 200}, values);
  const auto quantise = [](const std::shared_ptr<const Checkpoint>& source) {
    KeyMap map;
    TensorPart part = part_of(0, 0, 300);
    part.values = TensorPart::Values::kFp8Codes;
    map.add("codes", DType::kFloat8E4M3FN, Dims{300, 200}, {part});
    part.values = TensorPart::Values::kFp8Scales;
    part.num_rows = 3;
    map.add("scales", DType::kFloat32, Dims{3, 2}, {part});
    return derive(source, std::move(map));
  };
  const auto codes = quantise(memory.open());
  KeyMap back;
  TensorPart part = part_of(0, 0, 300);
  part.values = TensorPart::Values::kBlockScaled;
  part.scales = 1;
  back.add("w", DType::kBFloat16, Dims{300, 200}, {part});
  const auto again = quantise(derive(codes, std::move(back)));
  EXPECT_EQ(whole(codes, 0), whole(again, 0));
  EXPECT_EQ(whole(codes, 1), whole(again, 1));
}

TEST(Derived, HasNoFilesAndNoObjects) {
  const Example example;
  EXPECT_THROW(example.derived->open_file(0), ValueError);
  EXPECT_THROW(example.derived->read_object(0), ValueError);
}

}  // namespace
}  // namespace milepost
