#include "milepost/engine/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/test_memory.h"
#include "engine/test_models.h"
#include "milepost/base/error.h"
#include "storage/test_files.h"

namespace milepost {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class RoundTrip : public ::testing::TestWithParam<const char*> {};

TEST_P(RoundTrip, IsEqualToTheBit) {
  const std::string path = config_path(GetParam());
  const CheckpointPtr source = random_model(path);
  const NamedModel native = as_native(source, by_config(path), {});
  EXPECT_TRUE(native.renamed);
  EXPECT_FALSE(native.dequantised);
  EXPECT_THAT(native.left_out, IsEmpty());
  const NamedModel back = as_hugging_face(native.checkpoint, by_config(path), {}, false);
  EXPECT_TRUE(back.renamed);
  expect_equal(source, back.checkpoint);
  const NamedModel same = as_native(native.checkpoint, by_config(path), {});
  EXPECT_FALSE(same.renamed);
  expect_equal(native.checkpoint, same.checkpoint);
}

INSTANTIATE_TEST_SUITE_P(Models, RoundTrip,
                         ::testing::Values("tiny_llama3", "tiny_softmax", "tiny_sigmoid_groups", "tiny_mtp"));

TEST(AsNative, PairsRowsOfEachHeadForRope) {
  const std::string path = config_path("tiny_llama3");
  const CheckpointPtr source = random_model(path);
  const CheckpointPtr native = as_native(source, by_config(path), {}).checkpoint;
  const auto row = [](const std::vector<std::byte>& bytes, size_t index) {
    const auto start = bytes.begin() + static_cast<ptrdiff_t>(index * 64 * 4);
    return std::vector<std::byte>(start, start + 64 * 4);
  };
  for (const auto& [hf_name, native_name, heads] :
       {std::tuple("model.layers.1.self_attn.q_proj.weight", "layers.1.attention.qkv_linear.wq.weight", 4),
        std::tuple("model.layers.1.self_attn.k_proj.weight", "layers.1.attention.qkv_linear.wk.weight", 2)}) {
    const auto hf = bytes_of(source, hf_name), ours = bytes_of(native, native_name);
    for (size_t head = 0; head < static_cast<size_t>(heads); ++head) {
      for (size_t pair = 0; pair < 8; ++pair) {
        EXPECT_EQ(row(ours, head * 16 + 2 * pair), row(hf, head * 16 + pair));
        EXPECT_EQ(row(ours, head * 16 + 2 * pair + 1), row(hf, head * 16 + 8 + pair));
      }
    }
  }
}

TEST(AsNative, TiedModelsComeWithAndWithoutAnOutput) {
  const TestFolder folder;
  nlohmann::ordered_json json = config_json("tiny_llama3");
  const CheckpointPtr whole = random_model(config_path("tiny_llama3"));
  json["tie_word_embeddings"] = true;
  write_file(*posix_storage(), folder / "config.json", json.dump());
  const ModelChoice choice = by_config(folder.path());
  const CheckpointPtr with = as_native(whole, choice, {}).checkpoint;
  EXPECT_EQ(bytes_of(with, "lm_head.weight"), bytes_of(whole, "lm_head.weight"));
  const CheckpointPtr tied = as_native(without(whole, "lm_head"), choice, {}).checkpoint;
  EXPECT_EQ(bytes_of(tied, "lm_head.weight"), bytes_of(whole, "model.embed_tokens.weight"));
  expect_equal(as_hugging_face(tied, choice, {}, false).checkpoint, without(whole, "lm_head"));
  expect_equal(as_hugging_face(without(tied, "lm_head"), choice, {}, false).checkpoint,
               without(whole, "lm_head"));
}

TEST(AsNative, DequantisesFp8) {
  const std::string path = config_path("tiny_sigmoid_groups");
  const CheckpointPtr codes = random_model(path, DType::kBFloat16, true);
  const NamedModel native = as_native(codes, by_config(path), {});
  EXPECT_TRUE(native.dequantised);
  for (const Catalog::Tensor& tensor : native.checkpoint->catalog().tensors())
    EXPECT_EQ(tensor.dtype, tensor.name.ends_with("expert_bias_E") ? DType::kFloat32 : DType::kBFloat16);
  // What was made fp8 of bfloat16 is the same fp8 after a turn as bfloat16.
  expect_equal(codes, as_hugging_face(native.checkpoint, by_config(path), {}, true).checkpoint);
  EXPECT_THAT(refusal<MissingKeyError>(
                  [&] { as_native(without(codes, "o_proj.weight_scale_inv"), by_config(path), {}); }),
              AllOf(HasSubstr("model.layers.0.self_attn.o_proj.weight'"), HasSubstr("scales")));
}

TEST(AsNative, LeavesOutWhatIsNotTheModel) {
  const std::string path = config_path("tiny_llama3");
  const CheckpointPtr model = as_native(random_model(path), by_config(path), {}).checkpoint;
  MemoryCheckpoint memory;
  for (const Catalog::Tensor& info : model->catalog().tensors())
    memory.tensor(info.name, info.dtype, info.shape, bytes_of(model, info.name));
  memory.tensor("optimizer.state.norm.weight.step", DType::kFloat32, Dims{}, std::vector<float>{3});
  memory.number("train_state", 3);
  const NamedModel out = as_hugging_face(memory.open(), by_config(path), {}, false);
  ASSERT_EQ(out.left_out.size(), 2U);
  EXPECT_EQ(out.left_out[0].name, "optimizer.state.norm.weight.step");
  EXPECT_EQ(out.left_out[1].name, "train_state");
  expect_equal(out.checkpoint, random_model(path));
}

// What `source` holds, with the tensors whose names contain `part` cast to `dtype`.
CheckpointPtr partly_cast(const CheckpointPtr& source, std::string_view part, DType dtype) {
  KeyMap map;
  for (size_t i = 0; i < source->catalog().tensors().size(); ++i) {
    const Catalog::Tensor& info = source->catalog().tensors()[i];
    map.add(info.name, info.name.find(part) == std::string::npos ? info.dtype : dtype, info.shape,
            {whole_part(static_cast<int64_t>(i), info.shape)});
  }
  return derive(source, std::move(map));
}

TEST(AsNative, ExpertsOfSeveralDTypesBecomeFloat32) {
  const std::string path = config_path("tiny_softmax");
  const std::string stack = "layers.1.moe.routed_experts.inner_experts.w1_EFD";
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16, DType::kFloat8E8M0FNU}) {
    // Values that both dtypes hold.
    const CheckpointPtr exact =
        partly_cast(partly_cast(random_model(path), "experts.1.", dtype), "", DType::kFloat32);
    const CheckpointPtr mixed = partly_cast(exact, "experts.1.", dtype);
    const CheckpointPtr native = as_native(mixed, by_config(path), {}).checkpoint;
    const int64_t tensor = native->catalog().find_tensor(stack).value();
    EXPECT_EQ(native->catalog().tensors()[static_cast<size_t>(tensor)].dtype, DType::kFloat32);
    EXPECT_EQ(bytes_of(native, stack), bytes_of(as_native(exact, by_config(path), {}).checkpoint, stack));
  }
}

TEST(AsNative, ABiasThatIsNotThereIsZeros) {
  const std::string path = config_path("tiny_softmax");
  const CheckpointPtr source = without(random_model(path), "e_score_correction_bias");
  const NamedModel native = as_native(source, by_config(path), {});
  EXPECT_THAT(native.notes, ElementsAre(HasSubstr("filled with zeros")));
  EXPECT_EQ(bytes_of(native.checkpoint, "layers.1.moe.expert_bias_E"), std::vector<std::byte>(6 * 4));
}

TEST(AsNative, UnrecognisedNativeNamesPassWithANote) {
  const std::string path = config_path("tiny_llama3");
  const CheckpointPtr native = as_native(random_model(path), by_config(path), {}).checkpoint;
  const NamedModel out = as_native(native, {}, {});
  EXPECT_FALSE(out.model);
  EXPECT_THAT(out.notes, ElementsAre(AllOf(HasSubstr("not recognised"), HasSubstr("nearest is llama3"))));
  expect_equal(native, out.checkpoint);
  EXPECT_THAT(refusal<ValueError>([&] { as_hugging_face(native, {}, {}, false); }),
              HasSubstr("fit no known flavor"));
}

TEST(Model, IsTakenOutOfAKeyThatHoldsIt) {
  const std::string path = config_path("tiny_llama3");
  const CheckpointPtr native = as_native(random_model(path), by_config(path), {}).checkpoint;
  KeyMap wrapped;
  const std::vector<Catalog::Tensor>& tensors = native->catalog().tensors();
  for (size_t i = 0; i < tensors.size(); ++i) {
    wrapped.add("state_dict." + tensors[i].name, tensors[i].dtype, tensors[i].shape,
                {whole_part(static_cast<int64_t>(i), tensors[i].shape)});
  }
  wrapped.add("epoch", DType::kFloat32, Dims{}, {whole_part(0, Dims{})});
  const NamedModel named = as_native(derive(native, std::move(wrapped)), by_config(path), {});
  ASSERT_EQ(named.checkpoint->catalog().tensors().size(), tensors.size());
  EXPECT_EQ(bytes_of(named.checkpoint, "layers.0.attention.wo.weight"),
            bytes_of(native, "layers.0.attention.wo.weight"));
  EXPECT_THAT(named.notes, Contains(HasSubstr("under 'state_dict'")));
  ASSERT_EQ(named.left_out.size(), 1U);
  EXPECT_EQ(named.left_out[0].name, "epoch");
}

}  // namespace
}  // namespace milepost
