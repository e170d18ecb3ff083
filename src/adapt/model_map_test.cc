#include "milepost/adapt/model_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "adapt/test_tensors.h"
#include "milepost/base/error.h"

namespace milepost::adapt {
namespace {

using flavor::DeepSeekV3;
using flavor::Llama3;
using flavor::Model;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

const Model kLlama{"", tiny_llama()};
const Model kDeepSeek{"", tiny_deepseek()};
const std::string kGate = "model.layers.1.mlp.experts.";

Model softmax_model() {
  DeepSeekV3 dims = tiny_deepseek();
  dims.score_func = DeepSeekV3::Score::kSoftmax;
  return {"", dims};
}
Model tied_model() {
  Llama3 dims = tiny_llama();
  dims.tied_embeddings = true;
  return {"", dims};
}

// The text of the error E that `call` throws, which must be short and printable.
template <typename E, typename Call>
std::string refusal(Call&& call) {
  try {
    call();
  } catch (const E& error) {
    const std::string text = error.what();
    EXPECT_LT(text.size(), 5000U);
    for (const char c : text) EXPECT_TRUE(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f) << text;
    EXPECT_NE(error.hint(), "") << text;
    return text;
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

const std::vector<TensorPart>& parts_of(const ModelMap& map, std::string_view name) {
  return map.map.parts[static_cast<size_t>(map.map.target.find_tensor(name).value())];
}
DType dtype_of(const ModelMap& map, std::string_view name) {
  return map.map.target.tensors()[static_cast<size_t>(map.map.target.find_tensor(name).value())].dtype;
}
std::vector<std::string> left_out_of(const ModelMap& map) {
  std::vector<std::string> names;
  for (const LeftOut& left_out : map.left_out) names.push_back(left_out.name + ": " + left_out.why);
  return names;
}
std::vector<int64_t> source_rows(const TensorPart& part, int64_t rows) {
  std::vector<int64_t> out;
  for (int64_t row = 0; row < rows; ++row) out.push_back(part.order.source_row(row));
  return out;
}

// ---- what becomes of tensors

TEST(ImportMap, PermutesRowsOfEachHeadAsTheSpecSays) {
  Llama3 dims = tiny_llama();
  dims.n_heads = dims.n_kv_heads = 2;
  dims.head_dim = 8;
  const Model model{"", dims};
  const ModelMap map = imported(TestTensors::hugging_face(model), model);
  for (const char* name :
       {"layers.0.attention.qkv_linear.wq.weight", "layers.0.attention.qkv_linear.wk.weight"})
    EXPECT_THAT(source_rows(parts_of(map, name)[0], 16),
                ElementsAre(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15));
  EXPECT_EQ(parts_of(map, "layers.0.attention.qkv_linear.wv.weight")[0].order, RowOrder{});
}

TEST(ExportMap, PermutesRowsBack) {
  Llama3 dims = tiny_llama();
  dims.n_heads = dims.n_kv_heads = 2;
  dims.head_dim = 8;
  const Model model{"", dims};
  const ModelMap map = exported(TestTensors::native(model), model);
  EXPECT_THAT(source_rows(parts_of(map, "model.layers.0.self_attn.q_proj.weight")[0], 16),
              ElementsAre(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15));
}

TEST(ImportMap, DeepSeeksRowsKeepTheirOrder) {
  const ModelMap map = imported(TestTensors::hugging_face(kDeepSeek), kDeepSeek);
  for (const auto& parts : map.map.parts) {
    for (const TensorPart& part : parts) EXPECT_EQ(part.order, RowOrder{});
  }
}

TEST(ImportMap, StacksExpertsInOrder) {
  const TestTensors list = TestTensors::hugging_face(kDeepSeek);
  const ModelMap map = imported(list, kDeepSeek);
  const std::vector<TensorPart>& parts = parts_of(map, "layers.1.moe.routed_experts.inner_experts.w2_EDF");
  ASSERT_EQ(parts.size(), 2U);
  for (size_t expert = 0; expert < 2; ++expert) {
    EXPECT_EQ(parts[expert].first_row, static_cast<int64_t>(expert));
    EXPECT_EQ(parts[expert].num_rows, 1);
    EXPECT_EQ(list.tensors[static_cast<size_t>(parts[expert].source)].name,
              kGate + std::to_string(expert) + ".down_proj.weight");
  }
}

TEST(ImportMap, ADroppedTensorIsNamedWithItsReason) {
  TestTensors list = TestTensors::hugging_face(kLlama);
  list.add("model.layers.0.self_attn.rotary_emb.inv_freq", DType::kFloat32, {2});
  EXPECT_THAT(left_out_of(imported(list, kLlama)),
              ElementsAre("model.layers.0.self_attn.rotary_emb.inv_freq: computed from the configuration"));
}

TEST(ImportMap, WhatReleasesRepeatInTheMtpStageIsLeftOut) {
  TestTensors list = TestTensors::hugging_face(kDeepSeek);
  list.add("model.layers.2.embed_tokens.weight", DType::kBFloat16, {10, 8});
  list.add("model.layers.2.shared_head.head.weight", DType::kBFloat16, {10, 8});
  EXPECT_THAT(left_out_of(imported(list, kDeepSeek)),
              ElementsAre(StartsWith("model.layers.2.embed_tokens.weight: "),
                          StartsWith("model.layers.2.shared_head.head.weight: ")));
}

TEST(ImportMap, TiedEmbeddingsStandInForAMissingOutput) {
  TestTensors list = TestTensors::hugging_face(tied_model());
  const int64_t own = static_cast<int64_t>(list.tensors.size()) - 1;
  EXPECT_EQ(parts_of(imported(list, tied_model()), "lm_head.weight")[0].source, own);
  list.remove("lm_head.weight");
  EXPECT_EQ(parts_of(imported(list, tied_model()), "lm_head.weight")[0].source, 0);
}

TEST(ExportMap, TiedEmbeddingsAreWrittenOnce) {
  TestTensors list = TestTensors::native(tied_model());
  const ModelMap map = exported(list, tied_model());
  EXPECT_FALSE(map.map.target.find_tensor("lm_head.weight"));
  EXPECT_THAT(left_out_of(map), ElementsAre("lm_head.weight: tied to the embeddings"));
  EXPECT_TRUE(exported(list.remove("lm_head.weight"), tied_model()).left_out.empty());
}

TEST(ImportMap, SoftmaxModelsGetABiasOfZerosAndANote) {
  TestTensors list = TestTensors::hugging_face(softmax_model());
  EXPECT_TRUE(imported(list, softmax_model()).notes.empty());
  const ModelMap map = imported(list.remove_containing("e_score_correction_bias"), softmax_model());
  EXPECT_EQ(parts_of(map, "layers.1.moe.expert_bias_E")[0].values, TensorPart::Values::kZeros);
  EXPECT_EQ(dtype_of(map, "layers.1.moe.expert_bias_E"), DType::kFloat32);
  EXPECT_THAT(map.notes, ElementsAre(AllOf(HasSubstr("2 tensors"), HasSubstr("layers.1.moe.expert_bias_E"))));
}

TEST(ImportMap, SigmoidModelsNeedTheirBias) {
  TestTensors list = TestTensors::hugging_face(kDeepSeek);
  list.remove("model.layers.1.mlp.gate.e_score_correction_bias");
  EXPECT_THAT(refusal<MissingKeyError>([&] { imported(list, kDeepSeek); }),
              HasSubstr("1 of the tensors of a deepseek_v3 of 2 layers is missing: "
                        "model.layers.1.mlp.gate.e_score_correction_bias"));
}

TEST(ImportMap, MixedDtypesInAStackBecomeFloat32) {
  TestTensors list = TestTensors::hugging_face(kDeepSeek);
  list.at(kGate + "1.gate_proj.weight").dtype = DType::kFloat16;
  list.at(kGate + "0.up_proj.weight").dtype = DType::kFloat64;
  const ModelMap map = imported(list, kDeepSeek);
  const std::string stacks = "layers.1.moe.routed_experts.inner_experts.";
  EXPECT_EQ(dtype_of(map, stacks + "w1_EFD"), DType::kFloat32);
  EXPECT_EQ(dtype_of(map, stacks + "w2_EDF"), DType::kBFloat16);
  EXPECT_EQ(dtype_of(map, stacks + "w3_EFD"), DType::kFloat64);
}

TEST(ImportMap, NumbersAndFloatsAreNotStacked) {
  TestTensors list = TestTensors::hugging_face(kDeepSeek);
  list.at(kGate + "1.gate_proj.weight").dtype = DType::kInt64;
  EXPECT_THAT(refusal<FormatError>([&] { imported(list, kDeepSeek); }),
              AllOf(HasSubstr("entry '" + kGate + "1.gate_proj.weight'"), HasSubstr("int64"),
                    HasSubstr("bfloat16"), HasSubstr(kGate + "0.gate_proj.weight")));
}

// Their elements fill no whole bytes, so rows have no place of their own.
TEST(ImportMap, SixBitTensorsAreNotTakenApart) {
  for (const char* name : {"model.layers.0.self_attn.q_proj.weight", "model.layers.0.mlp.gate_proj.weight"}) {
    TestTensors list = TestTensors::hugging_face(kLlama);
    list.at(name).dtype = DType::kFloat6E2M3;
    if (std::string_view(name).ends_with("q_proj.weight")) {
      EXPECT_THAT(refusal<FormatError>([&] { imported(list, kLlama); }), HasSubstr(name));
    } else {
      EXPECT_EQ(dtype_of(imported(list, kLlama), "layers.0.feed_forward.w1.weight"), DType::kFloat6E2M3);
    }
  }
  TestTensors experts = TestTensors::hugging_face(kDeepSeek, DType::kFloat6E3M2);
  refusal<FormatError>([&] { imported(experts, kDeepSeek); });
  refusal<FormatError>([&] { exported(TestTensors::native(kDeepSeek, DType::kFloat6E3M2), kDeepSeek); });
}

TEST(NativeMap, ChecksAndKeepsNames) {
  TestTensors list = TestTensors::native(kDeepSeek);
  const TestCatalog source(list);
  const ModelMap map = native_map(source.catalog, source.all, kDeepSeek, {});
  EXPECT_EQ(map.map.target.tensors().size(), list.tensors.size());
  const TestCatalog damaged(list.remove("norm.weight"));
  EXPECT_THAT(refusal<MissingKeyError>([&] { native_map(damaged.catalog, damaged.all, kDeepSeek, {}); }),
              HasSubstr("norm.weight"));
}

// ---- refusals

TEST(ImportMap, ListsWhatIsMissing) {
  TestTensors list = TestTensors::hugging_face(kDeepSeek);
  list.remove("model.norm.weight").remove("model.layers.0.mlp.up_proj.weight");
  EXPECT_THAT(refusal<MissingKeyError>([&] { imported(list, kDeepSeek); }),
              HasSubstr("2 of the tensors of a deepseek_v3 of 2 layers are missing: "
                        "model.layers.0.mlp.up_proj.weight, model.norm.weight; complete the checkpoint"));
}

TEST(ImportMap, ShowsExpertGaps) {
  const auto text_without = [&](const std::string& part) {
    TestTensors list = TestTensors::hugging_face(kDeepSeek);
    return refusal<MissingKeyError>([&] { imported(list.remove_containing(part), kDeepSeek); });
  };
  EXPECT_THAT(text_without(kGate + "0."),
              AllOf(HasSubstr("3 of the tensors"), HasSubstr(kGate + "0.gate_proj.weight"),
                    HasSubstr(kGate + "0.down_proj.weight"), HasSubstr(kGate + "0.up_proj.weight"),
                    Not(HasSubstr("experts.1."))));
  EXPECT_THAT(text_without(kGate + "1.down_proj"),
              AllOf(HasSubstr("1 of the tensors"), HasSubstr(kGate + "1.down_proj.weight")));
  EXPECT_THAT(text_without("experts.1."), HasSubstr("6 of the tensors"));  // the MTP stage's last one too
}

TEST(ImportMap, NamesTheFirstTensorOfAnotherShapeAndBothShapes) {
  TestTensors list = TestTensors::hugging_face(kLlama);
  list.at("model.norm.weight").shape = {9};
  list.at("model.layers.0.self_attn.o_proj.weight").shape = {8, 17};
  list.remove("lm_head.weight");
  EXPECT_THAT(refusal<ShapeMismatchError>([&] { imported(list, kLlama); }),
              HasSubstr("entry 'model.layers.0.self_attn.o_proj.weight': its shape is [8, 17], but that of "
                        "a llama3 of 1 layer is [8, 16]; give the config.json that goes with it"));
}

TEST(ImportMap, ASmallestOrNumberlessTensorIsAnotherShapeToo) {
  for (const Dims& shape : {Dims{}, Dims{0, 8}, Dims{8}, Dims{1, 10, 8}}) {
    TestTensors list = TestTensors::hugging_face(kLlama);
    list.at("lm_head.weight").shape = shape;
    EXPECT_THAT(refusal<ShapeMismatchError>([&] { imported(list, kLlama); }),
                HasSubstr("its shape is " + dims_text(shape)));
  }
}

TEST(ImportMap, UnknownTensorsAreListedOrLeftOut) {
  TestTensors list = TestTensors::hugging_face(kLlama);
  list.add("model.layers.0.self_attn.q_proj.bias", DType::kBFloat16, {16});
  EXPECT_THAT(refusal<FormatError>([&] { imported(list, kLlama); }),
              AllOf(HasSubstr("1 of the tensors has no place in a llama3 of 1 layer: "
                              "model.layers.0.self_attn.q_proj.bias"),
                    HasSubstr("--skip-unsupported")));
  EXPECT_THAT(left_out_of(imported(list, kLlama, {.drop_unknown = true})),
              ElementsAre("model.layers.0.self_attn.q_proj.bias: has no place in the model"));
}

TEST(ModelMaps, RefuseMtpStagesBeyondTheModels) {
  DeepSeekV3 more = tiny_deepseek();
  more.num_mtp_layers = 3;
  const Model three{"", more};
  const std::string wanted =
      "Checkpoint MTP stage 1 is not present in the model config, which owns 1 stage(s).; --mtp-layers 2 "
      "takes it over, --mtp-layers 1 leaves it out";
  EXPECT_EQ(refusal<ValueError>([&] { imported(TestTensors::hugging_face(three), kDeepSeek); }), wanted);
  EXPECT_EQ(refusal<ValueError>([&] { exported(TestTensors::native(three), kDeepSeek); }), wanted);
  for (const ModelMap& map : {imported(TestTensors::hugging_face(three), kDeepSeek, {.drop_extra_mtp = true}),
                              exported(TestTensors::native(three), kDeepSeek, {.drop_extra_mtp = true})}) {
    EXPECT_FALSE(map.left_out.empty());
    for (const LeftOut& left_out : map.left_out)
      EXPECT_THAT(left_out.why, HasSubstr("multi-token prediction stage"));
  }
}

TEST(ModelMaps, AStageOfAnyNumberIsOnlyANumber) {
  const std::string hf = "model.layers.9223372036854775807.x", native = "mtp_layers.9223372036854775807.x";
  const auto with = [](TestTensors list, const std::string& name) {
    return list.add(name, DType::kFloat32, {1});
  };
  EXPECT_THAT(
      refusal<ValueError>([&] { imported(with(TestTensors::hugging_face(kDeepSeek), hf), kDeepSeek); }),
      AllOf(HasSubstr("stage 9223372036854775805"), HasSubstr("; --mtp-layers 1 leaves it out")));
  EXPECT_THAT(refusal<ValueError>([&] { exported(with(TestTensors::native(kDeepSeek), native), kDeepSeek); }),
              HasSubstr("stage 9223372036854775807"));
  const TestCatalog source(with(TestTensors::native(kDeepSeek), native));
  EXPECT_GT(count_mtp_stages(source.catalog, source.all, kDeepSeek, Naming::kNative), 1'000'000);
  for (const char* no_number : {"model.layers.99999999999999999999.y", "model.layers.-3.y", "model.layers..y",
                                "model.layers.2", "model.layers.2x.y"}) {
    EXPECT_THAT(refusal<FormatError>(
                    [&] { imported(with(TestTensors::hugging_face(kDeepSeek), no_number), kDeepSeek); }),
                HasSubstr(std::string("no place in a deepseek_v3 of 2 layers: ") + no_number));
  }
}

TEST(ImportMap, ManyAndUglyNamesMakeAShortMessage) {
  TestTensors list = TestTensors::hugging_face(kLlama);
  list.add("\x1b[31m\nname\x7f", DType::kFloat32, {1}).add(std::string(100'000, 'n'), DType::kFloat32, {1});
  for (int i = 0; i < 100'000; ++i) list.add("other." + std::to_string(i), DType::kFloat32, {1});
  EXPECT_THAT(refusal<FormatError>([&] { imported(list, kLlama); }),
              AllOf(HasSubstr("100002 of the tensors have no place"), HasSubstr("\\x1b[31m\\nname\\x7f"),
                    HasSubstr("and 99990 more")));
  TestTensors only;
  for (int i = 0; i < 100'000; ++i) only.add("other." + std::to_string(i), DType::kFloat32, {1});
  refusal<MissingKeyError>([&] { imported(only, kDeepSeek); });
}

// A forged config.json beside a small checkpoint.
TEST(ImportMap, AModelFarLargerThanTheCheckpointIsNotListed) {
  DeepSeekV3 dims = tiny_deepseek();
  dims.n_layers = 100;
  dims.num_experts = 2000;
  EXPECT_THAT(refusal<MissingKeyError>([&] {
                imported(TestTensors::hugging_face(kLlama), {"", dims});
              }),
              HasSubstr("a deepseek_v3 of 100 layers has more than 200012 tensors, but only 12 are there"));
  dims.num_experts = 1'000'000'000;
  refusal<MissingKeyError>([&] { imported(TestTensors::hugging_face(kLlama), {"", dims}); });
  refusal<ValueError>([&] { exported(TestTensors::native(kLlama), {"", dims}); });
}

// ---- by whose names

Naming naming_of(const TestTensors& list) {
  const TestCatalog source(list);
  return find_naming(source.catalog, source.all);
}

TEST(Naming, IsFoundWithoutTheEmbeddings) {
  for (const Model& model : {kLlama, kDeepSeek}) {
    TestTensors native = TestTensors::native(model), hf = TestTensors::hugging_face(model);
    EXPECT_EQ(naming_of(native), Naming::kNative);
    EXPECT_EQ(naming_of(hf), Naming::kHuggingFace);
    EXPECT_EQ(naming_of(native.remove("tok_embeddings.weight")), Naming::kNative);
    EXPECT_EQ(naming_of(hf.remove("model.embed_tokens.weight")), Naming::kHuggingFace);
  }
}

TEST(Naming, OfOtherModelsIsUnknown) {
  TestTensors other;
  other.add("embed.weight", DType::kFloat32, {1}).add("layers.0.ffn_norm.weight", DType::kFloat32, {1});
  EXPECT_EQ(naming_of(other), Naming::kUnknown);
  EXPECT_EQ(naming_of({}), Naming::kUnknown);
}

}  // namespace
}  // namespace milepost::adapt
