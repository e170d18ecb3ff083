#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "adapt/test_tensors.h"
#include "milepost/base/error.h"

namespace milepost::adapt {
namespace {

using flavor::Model;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

bool is_quantised(const TestTensors& list) {
  const TestCatalog source(list);
  return has_quantised(source.catalog, source.all);
}
ModelMap dequantised(const TestTensors& list, DType dtype = DType::kBFloat16,
                     std::array<int64_t, 2> block = {128, 128}) {
  const TestCatalog source(list);
  return dequantised_map(source.catalog, source.all, dtype, block);
}

// A matrix of codes with ragged edges.
TestTensors codes() {
  TestTensors list;
  list.add("w", DType::kFloat8E4M3FN, {130, 300}).add("w_scale_inv", DType::kFloat32, {2, 3});
  return list.add("norm", DType::kBFloat16, {300});
}
TestTensors mxfp4() {
  TestTensors list;
  return list.add("w_blocks", DType::kUInt8, {2, 6, 3, 16}).add("w_scales", DType::kUInt8, {2, 6, 3});
}

template <typename E>
std::string refusal(const TestTensors& list, std::array<int64_t, 2> block = {128, 128}) {
  try {
    dequantised(list, DType::kBFloat16, block);
  } catch (const E& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

TEST(HasQuantised, LooksAtDtypesAndNames) {
  EXPECT_TRUE(is_quantised(codes()));
  EXPECT_TRUE(is_quantised(codes().remove("w_scale_inv")));
  EXPECT_TRUE(is_quantised(mxfp4()));
  EXPECT_FALSE(is_quantised(codes().remove("w").remove("w_scale_inv")));
  EXPECT_FALSE(is_quantised(mxfp4().remove("w_scales")));
}

TEST(DequantisedMap, ReplacesCodesAndTakesTheScalesAway) {
  const ModelMap map = dequantised(codes());
  ASSERT_EQ(map.map.target.tensors().size(), 2U);
  EXPECT_EQ(map.map.target.tensors()[0].name, "w");
  EXPECT_EQ(map.map.target.tensors()[0].dtype, DType::kBFloat16);
  EXPECT_EQ(map.map.parts[0][0].values, TensorPart::Values::kBlockScaled);
  EXPECT_EQ(map.map.parts[0][0].scales, 1);
  EXPECT_THAT(map.notes, ElementsAre(HasSubstr("1 quantised")));
}

TEST(DequantisedMap, Mxfp4LosesItsSuffixAndItsGroups) {
  const ModelMap map = dequantised(mxfp4(), DType::kFloat32);
  ASSERT_EQ(map.map.target.tensors().size(), 1U);
  EXPECT_EQ(map.map.target.tensors()[0].name, "w");
  EXPECT_THAT(map.map.target.tensors()[0].shape, ElementsAre(2, 6, 96));
}

TEST(DequantisedMap, MissingScalesAreNamed) {
  EXPECT_THAT(refusal<MissingKeyError>(codes().remove("w_scale_inv")),
              AllOf(HasSubstr("entry 'w'"), HasSubstr("float8_e4m3fn codes"), HasSubstr("w_scale_inv")));
}

TEST(DequantisedMap, ScalesMustFitTheCodes) {
  for (const Dims& shape : {Dims{2, 2}, Dims{3, 2}, Dims{6}, Dims{}, Dims{130, 300}, Dims{0, 3}}) {
    TestTensors list = codes();
    list.at("w_scale_inv").shape = shape;
    EXPECT_THAT(refusal<ShapeMismatchError>(list),
                AllOf(HasSubstr("entry 'w_scale_inv'"), HasSubstr("these scales are " + dims_text(shape)),
                      HasSubstr("the codes w [130, 300] need [2, 3]"), HasSubstr("weight_block_size")));
  }
  TestTensors list = mxfp4();
  list.at("w_scales").shape = {2, 6, 4};
  EXPECT_THAT(refusal<ShapeMismatchError>(list), HasSubstr("[2, 6, 3]"));
}

TEST(DequantisedMap, ScalesMustBePlainNumbers) {
  for (const DType dtype : {DType::kInt32, DType::kFloat8E4M3FN, DType::kFloat6E2M3, DType::kComplex64}) {
    TestTensors list = codes();
    list.at("w_scale_inv").dtype = dtype;
    list.add("w_scale_inv_scale_inv", DType::kFloat32, {1, 1});
    EXPECT_THAT(refusal<FormatError>(list), AllOf(HasSubstr("w_scale_inv"), HasSubstr("plain floating")));
  }
  for (const DType dtype : {DType::kBFloat16, DType::kFloat64, DType::kFloat8E8M0FNU}) {
    TestTensors list = codes();
    list.at("w_scale_inv").dtype = dtype;
    EXPECT_NO_THROW(dequantised(list));
  }
}

TEST(DequantisedMap, ScalesWithoutCodesStay) {
  TestTensors list = codes();
  list.at("w").dtype = DType::kBFloat16;
  EXPECT_TRUE(dequantised(list).map.target.find_tensor("w_scale_inv"));
}

TEST(DequantisedMap, OnlyMatricesHaveBlocks) {
  for (const Dims& shape : {Dims{}, Dims{128}, Dims{2, 128, 128}}) {
    TestTensors list = codes();
    list.at("w").shape = shape;
    EXPECT_THAT(refusal<FormatError>(list), HasSubstr(dims_text(shape)));
  }
  for (const Dims& shape : {Dims{}, Dims{16}}) {
    TestTensors list = mxfp4();
    list.at("w_blocks").shape = shape;
    EXPECT_THAT(refusal<FormatError>(list), HasSubstr("w_blocks"));
  }
  TestTensors list = mxfp4();
  list.at("w_blocks").dtype = DType::kFloat32;
  EXPECT_THAT(refusal<FormatError>(list), HasSubstr("uint8"));
}

TEST(DequantisedMap, BlocksMustBeSquare) {
  EXPECT_THAT(refusal<FormatError>(codes(), {128, 64}), HasSubstr("blocks of 128 x 64"));
  EXPECT_THAT(refusal<FormatError>(codes(), {0, 0}), HasSubstr("0 x 0"));
}

TEST(DequantisedMap, ValuesOfTheSameNameAreADuplicate) {
  TestTensors list = mxfp4();
  list.add("w", DType::kBFloat16, {2, 6, 96});
  EXPECT_THAT(refusal<FormatError>(list), HasSubstr("'w'"));
}

TEST(DequantisedMap, NumbersOfValuesMustNotOverflow) {
  TestTensors list;
  list.add("w_blocks", DType::kUInt8, {int64_t{1} << 40, int64_t{1} << 40})
      .add("w_scales", DType::kUInt8, {int64_t{1} << 40});
  EXPECT_THAT(refusal<FormatError>(list), HasSubstr("overflows"));
}

TEST(DequantisedMap, EmptyMatricesStayEmpty) {
  TestTensors list;
  list.add("w", DType::kFloat8E4M3FN, {0, 300}).add("w_scale_inv", DType::kFloat32, {0, 3});
  EXPECT_THAT(dequantised(list).map.target.tensors()[0].shape, ElementsAre(0, 300));
}

TEST(DequantisedMap, GivesFloatsOfTwoOrFourBytes) {
  EXPECT_THROW(dequantised(codes(), DType::kFloat64), ValueError);
  EXPECT_THROW(dequantised(codes(), DType::kInt32), ValueError);
}

TEST(Fp8Map, QuantisesProjectionsAndNothingElse) {
  const Model model{"", tiny_deepseek()};
  const TestCatalog source(TestTensors::hugging_face(model, DType::kFloat32));
  const KeyMap map = fp8_map(source.catalog, model, DType::kBFloat16);
  const auto dtype_of = [&](const std::string& name) {
    return map.target.tensors()[static_cast<size_t>(map.target.find_tensor(name).value())].dtype;
  };
  for (const std::string name :
       {"self_attn.q_a_proj", "self_attn.q_b_proj", "self_attn.kv_a_proj_with_mqa", "self_attn.kv_b_proj",
        "self_attn.o_proj", "mlp.experts.1.down_proj", "mlp.shared_experts.up_proj"}) {
    for (const std::string layer : {"model.layers.1.", "model.layers.2."}) {
      EXPECT_EQ(dtype_of(layer + name + ".weight"), DType::kFloat8E4M3FN) << name;
      EXPECT_EQ(dtype_of(layer + name + ".weight_scale_inv"), DType::kFloat32) << name;
    }
  }
  for (const std::string name :
       {"model.embed_tokens.weight", "lm_head.weight", "model.norm.weight", "model.layers.1.mlp.gate.weight",
        "model.layers.2.eh_proj.weight", "model.layers.1.input_layernorm.weight"})
    EXPECT_EQ(dtype_of(name), DType::kBFloat16) << name;
  EXPECT_EQ(dtype_of("model.layers.1.mlp.gate.e_score_correction_bias"), DType::kFloat32);
}

TEST(Fp8Map, WidensTheBiasOfTheRouter) {
  const Model model{"", tiny_deepseek()};
  TestTensors list = TestTensors::hugging_face(model);
  const std::string bias = "model.layers.1.mlp.gate.e_score_correction_bias";
  list.at(bias).dtype = DType::kBFloat16;
  const TestCatalog source(list);
  const KeyMap map = fp8_map(source.catalog, model, DType::kBFloat16);
  EXPECT_EQ(map.target.tensors()[static_cast<size_t>(map.target.find_tensor(bias).value())].dtype,
            DType::kFloat32);
}

TEST(Fp8Map, LeavesWhatIsNoFloatAlone) {
  const Model model{"", tiny_llama()};
  TestTensors list = TestTensors::hugging_face(model);
  const std::string q = "model.layers.0.self_attn.q_proj.weight", norm = "model.norm.weight";
  list.at(q).dtype = DType::kInt64;
  list.at(norm).dtype = DType::kFloat8E8M0FNU;
  const TestCatalog source(list);
  const KeyMap map = fp8_map(source.catalog, model, DType::kBFloat16);
  EXPECT_FALSE(map.target.find_tensor(q + "_scale_inv"));
  EXPECT_EQ(map.target.tensors()[static_cast<size_t>(map.target.find_tensor(q).value())].dtype,
            DType::kInt64);
  EXPECT_EQ(map.target.tensors()[static_cast<size_t>(map.target.find_tensor(norm).value())].dtype,
            DType::kFloat8E8M0FNU);
}

}  // namespace
}  // namespace milepost::adapt
