#include "milepost/engine/ema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/test_models.h"
#include "milepost/base/error.h"

namespace milepost {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

CheckpointPtr native_model(const std::string& path, uint64_t seed) {
  const char* model = path.find("llama") == path.npos ? "deepseek_v3" : "llama3";
  const CheckpointPtr hf =
      synthetic_hugging_face(named_model(model, std::nullopt, path), DType::kFloat32, false, seed);
  return as_native(hf, by_config(path), {}).checkpoint;
}

// `source` and averages of it: the same values, but for one norm that has another's, which shows who is read.
// Names with `left_out` have none.
CheckpointPtr with_averages(const CheckpointPtr& source, const std::vector<EmaCopy>& copies,
                            const std::string& left_out = "nothing") {
  KeyMap map;
  const std::vector<Catalog::Tensor>& tensors = source->catalog().tensors();
  for (size_t i = 0; i < tensors.size(); ++i) {
    map.add(tensors[i].name, tensors[i].dtype, tensors[i].shape,
            {whole_part(static_cast<int64_t>(i), tensors[i].shape)});
  }
  const auto find = [&](const std::string& name) { return *source->catalog().find_tensor(name); };
  for (const EmaCopy& copy : copies) {
    for (const Catalog::Tensor& tensor : tensors) {
      if (tensor.name.find(left_out) != std::string::npos || tensor.name.ends_with("expert_bias_E")) continue;
      const size_t fused = tensor.name.find("qkv_linear.w");
      if (fused == std::string::npos) {
        const bool is_norm = tensor.name == "layers.0.attention_norm.weight";
        const int64_t values = find(is_norm ? "layers.0.ffn_norm.weight" : tensor.name);
        map.add(copy.key(tensor.name), tensor.dtype, tensor.shape, {whole_part(values, tensor.shape)});
      } else if (tensor.name.ends_with("wq.weight")) {
        // tiny_llama3: 4 query heads, 2 key heads of 16 rows.
        const std::string stem = tensor.name.substr(0, fused) + "qkv_linear.";
        std::vector<TensorPart> parts;
        for (int64_t head = 0, row = 0; head < 2; ++head) {
          for (const auto& [part, rows] : {std::pair("wq", 32), std::pair("wk", 16), std::pair("wv", 16)}) {
            TensorPart piece;
            piece.first_row = row;
            piece.num_rows = rows;
            piece.source = find(stem + part + ".weight");
            piece.origin = {head * rows, 0};
            parts.push_back(piece);
            row += rows;
          }
        }
        map.add(copy.key(stem + "wqkv.weight"), tensor.dtype, Dims{128, tensor.shape[1]}, parts);
      }
    }
  }
  return derive(source, std::move(map));
}

EmaCopy titan_copy(const std::string& name) { return {name, "ema.state.", ".ema_params." + name}; }

TEST(Ema, NamesCopiesAsTorchTitanDoes) {
  EXPECT_EQ(ema_copy_name(0.999, 0.05), "decay_0p999");
  EXPECT_EQ(ema_copy_name(std::nullopt, 0.05), "half_life_0p05");
  EXPECT_EQ(ema_copy_name(std::nullopt, 1e-5), "half_life_1em05");
}

TEST(Ema, StandsInPlaceOfTheWeights) {
  for (const char* name : {"tiny_llama3", "tiny_softmax"}) {
    const std::string path = config_path(name);
    const CheckpointPtr source = native_model(path, 1);
    const CheckpointPtr saved = with_averages(source, {own_ema()});
    const CheckpointPtr model = ema_as_model(saved, *choose_ema(*saved, ""), by_config(path));
    ASSERT_EQ(model->catalog().tensors().size(), source->catalog().tensors().size());
    for (const Catalog::Tensor& tensor : source->catalog().tensors()) {
      const bool is_norm = tensor.name == "layers.0.attention_norm.weight";
      EXPECT_EQ(bytes_of(model, tensor.name),
                bytes_of(source, is_norm ? "layers.0.ffn_norm.weight" : tensor.name))
          << tensor.name;
    }
    EXPECT_EQ(as_hugging_face(model, by_config(path), {}, false).checkpoint->catalog().tensors().size(),
              as_hugging_face(source, by_config(path), {}, false).checkpoint->catalog().tensors().size());
  }
}

TEST(Ema, ChoosesAmongSeveralByName) {
  const CheckpointPtr source = native_model(config_path("tiny_softmax"), 1);
  EXPECT_FALSE(choose_ema(*source, ""));
  const CheckpointPtr one = with_averages(source, {titan_copy("decay_0p9")});
  EXPECT_EQ(choose_ema(*one, "")->key("x"), "ema.state.x.ema_params.decay_0p9");
  const CheckpointPtr two = with_averages(source, {titan_copy("decay_0p9"), titan_copy("half_life_0p05")});
  EXPECT_EQ(choose_ema(*two, "half_life_0p05")->name, "half_life_0p05");
  EXPECT_THAT(refusal<ValueError>([&] { choose_ema(*two, ""); }),
              AllOf(HasSubstr("several moving averages: decay_0p9, half_life_0p05"), HasSubstr("--ema-key")));
  EXPECT_THAT(refusal<ValueError>([&] { choose_ema(*two, "decay_0p5"); }),
              HasSubstr("no moving average is named decay_0p5, but there are: decay_0p9, half_life_0p05"));
}

TEST(Ema, OfAnotherModelIsRefused) {
  const std::string path = config_path("tiny_llama3");
  const CheckpointPtr saved = with_averages(native_model(path, 1), {own_ema()}, "layers.1.ffn_norm");
  EXPECT_THAT(refusal<MissingKeyError>([&] { ema_as_model(saved, own_ema(), by_config(path)); }),
              HasSubstr("ema_optimizer.state.layers.1.ffn_norm.weight.ema_params"));
}

}  // namespace
}  // namespace milepost
