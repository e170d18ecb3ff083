#include "engine/model_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <numeric>

#include "engine/test_memory.h"
#include "engine/test_models.h"
#include "milepost/base/error.h"
#include "storage/test_files.h"

namespace milepost {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

TEST(ModelChoice, FindsAFlavorByItsNamesAndShapes) {
  const CheckpointPtr source =
      synthetic_hugging_face(flavor::find("deepseek_v3", "debugmodel"), DType::kBFloat16, false, 1);
  EXPECT_EQ(as_native(source, {}, {}).model->text(), "deepseek_v3 debugmodel");
  ModelChoice only_flavor;
  only_flavor.flavor = "debugmodel";  // of two models
  EXPECT_EQ(as_native(source, only_flavor, {}).model->text(), "deepseek_v3 debugmodel");
}

TEST(ModelChoice, RefusesUnknownNames) {
  const CheckpointPtr source = random_model(config_path("tiny_llama3"));
  EXPECT_THAT(refusal<ValueError>([&] { as_native(source, by_flavor("bert", "8B"), {}); }),
              AllOf(HasSubstr("unknown model 'bert'"), HasSubstr("llama3, deepseek_v3")));
  EXPECT_THAT(refusal<ValueError>([&] { as_native(source, by_flavor("llama3", "9B"), {}); }),
              AllOf(HasSubstr("llama3 has no flavor '9B'"), HasSubstr("debugmodel, 1B, 3B, 8B, 70B, 405B")));
  ModelChoice flavor_only;
  flavor_only.flavor = "9B";
  EXPECT_THAT(refusal<ValueError>([&] { as_native(source, flavor_only, {}); }),
              AllOf(HasSubstr("no model has a flavor '9B'"), HasSubstr("deepseek_v3 671B")));
}

TEST(ModelChoice, RefusesContradictions) {
  const CheckpointPtr source = random_model(config_path("tiny_llama3"));
  ModelChoice both = by_flavor("llama3", "8B");
  both.config = config_path("tiny_llama3");
  EXPECT_THAT(refusal<ValueError>([&] { as_native(source, both, {}); }), HasSubstr("both given"));
  ModelChoice other = by_config(config_path("tiny_llama3"));
  other.model = "deepseek_v3";
  EXPECT_THAT(refusal<ValueError>([&] { as_native(source, other, {}); }),
              AllOf(HasSubstr("tiny_llama3.json"), HasSubstr("is of a llama3, not a deepseek_v3")));
  ModelChoice stages = by_config(config_path("tiny_llama3"));
  stages.mtp_layers = 1;
  EXPECT_THAT(refusal<ValueError>([&] { as_native(source, stages, {}); }), HasSubstr("multi-token"));
}

TEST(ModelChoice, SaysWhereAFlavorAndTheConfigOfTheSourceDiffer) {
  const flavor::Model model = flavor::find("llama3", "debugmodel");
  flavor::Model other = model;
  std::get<flavor::Llama3>(other.dims).n_heads /= 2;
  std::get<flavor::Llama3>(other.dims).head_dim *= 2;
  const CheckpointPtr source = synthetic_hugging_face(model, DType::kBFloat16, false, 1);
  const std::vector<int64_t> all = [&] {
    std::vector<int64_t> tensors(source->catalog().tensors().size());
    std::iota(tensors.begin(), tensors.end(), 0);
    return tensors;
  }();
  const auto notes_with = [&](const flavor::Model& of_config) {
    adapt::HfConfig config;
    config.model = of_config;
    return choose_model(*source, all, adapt::Naming::kHuggingFace, by_flavor("llama3", "debugmodel"), config)
        .notes;
  };
  EXPECT_THAT(notes_with(model), ::testing::IsEmpty());
  EXPECT_THAT(notes_with(other),
              ElementsAre(HasSubstr("config.json of the source differs: its n_heads is 8, not 16")));
}

TEST(ModelChoice, AFlavorThatDoesNotFitNamesATensorAndBothShapes) {
  const CheckpointPtr source = random_model(config_path("tiny_llama3"));
  EXPECT_THAT(refusal<ShapeMismatchError>([&] { as_native(source, by_flavor("llama3", "8B"), {}); }),
              AllOf(HasSubstr("model.embed_tokens.weight"), HasSubstr("[96, 64]"),
                    HasSubstr("that of llama3 8B is [128256, 4096]")));
}

TEST(ModelChoice, NamesTheNearestWhenNothingFits) {
  const CheckpointPtr source = random_model(config_path("tiny_llama3"));
  EXPECT_THAT(
      refusal<ValueError>([&] { as_native(source, {}, {}); }),
      AllOf(HasSubstr("fit no known flavor"), HasSubstr("nearest is llama3 "), HasSubstr("--config")));
}

TEST(ModelChoice, NamesAllThatFit) {
  adapt::Fit fit;
  fit.exact = {flavor::find("llama3", "8B"), flavor::find("llama3", "70B")};
  EXPECT_THAT(refusal<ValueError>([&] { only_fit(fit, "some/where"); }),
              AllOf(HasSubstr("some/where"), HasSubstr("more than one model: llama3 8B, llama3 70B"),
                    HasSubstr("--model and --flavor")));
}

TEST(ModelChoice, RefusesForeignAndEmptyCheckpoints) {
  MemoryCheckpoint foreign;
  foreign.tensor("transformer.wte.weight", DType::kFloat32, Dims{2}, std::vector<float>{1, 2});
  EXPECT_THAT(refusal<ValueError>([source = foreign.open()] { as_native(source, {}, {}); }),
              HasSubstr("the names of no known model"));
  EXPECT_THAT(refusal<ValueError>([source = MemoryCheckpoint().open()] { as_native(source, {}, {}); }),
              HasSubstr("no tensors of a model"));
}

TEST(ModelChoice, MissingEmbeddingsAreMissingAndNotForeign) {
  const std::string path = config_path("tiny_llama3");
  const CheckpointPtr source = random_model(path);
  EXPECT_THAT(
      refusal<MissingKeyError>([&] { as_native(without(source, "embed_tokens"), by_config(path), {}); }),
      HasSubstr("is missing: model.embed_tokens.weight"));
}

TEST(ModelChoice, MtpStagesAreTakenAsTold) {
  const std::string path = config_path("tiny_mtp");
  const CheckpointPtr source = random_model(path);  // of two stages
  ModelChoice choice = by_config(path);
  for (int64_t stages = 0; stages <= 2; ++stages) {
    choice.mtp_layers = stages;
    const NamedModel out = as_native(source, choice, {});
    EXPECT_EQ(out.left_out.empty(), stages == 2);
    EXPECT_EQ(out.checkpoint->catalog().find_tensor("mtp_layers.0.enorm.weight").has_value(), stages > 0);
    EXPECT_EQ(out.checkpoint->catalog().find_tensor("mtp_layers.1.enorm.weight").has_value(), stages > 1);
  }
  choice.mtp_layers = 3;
  EXPECT_THAT(refusal<MissingKeyError>([&] { as_native(source, choice, {}); }), HasSubstr("model.layers.4."));
  choice.mtp_layers = 1'000'000'000'000;
  EXPECT_THROW(as_native(source, choice, {}), Error);
}

TEST(ModelChoice, MtpStagesBeyondTheConfigAreRefused) {
  const TestFolder folder;
  Json json = config_json("tiny_mtp");
  json["num_nextn_predict_layers"] = 1;
  write_file(*posix_storage(), folder / "config.json", json.dump());
  const CheckpointPtr source = random_model(config_path("tiny_mtp"));
  const std::string wanted =
      "Checkpoint MTP stage 1 is not present in the model config, which owns 1 stage(s).";
  const ModelChoice choice = by_config(folder.path());
  EXPECT_THAT(refusal<ValueError>([&] { as_native(source, choice, {}); }), HasSubstr(wanted));
  const CheckpointPtr native = as_native(source, by_config(config_path("tiny_mtp")), {}).checkpoint;
  EXPECT_THAT(refusal<ValueError>([&] { as_hugging_face(native, choice, {}, false); }), HasSubstr(wanted));
}

TEST(ModelChoice, MtpStagesThatTheCheckpointLostAreNoted) {
  const std::string path = config_path("tiny_mtp");
  const CheckpointPtr source = random_model(path);
  const NamedModel out = as_native(without(without(source, "layers.2."), "layers.3."), by_config(path), {});
  EXPECT_THAT(out.notes,
              ElementsAre(HasSubstr("has 2 multi-token prediction stages, the checkpoint has none")));
}

// ---- config.json beside the source

struct OnDisk {
  explicit OnDisk(const std::string& config) {
    ConvertOptions options;
    options.to = CheckpointFormat::kSafetensors;
    convert(random_model(config_path("tiny_llama3")), folder / "hf", options);
    write_file(*posix_storage(), folder / "hf/config.json", config);
    source = Checkpoint::open(folder / "hf");
  }
  TestFolder folder;
  CheckpointPtr source;
};

TEST(ModelChoice, ReadsTheConfigBesideTheSource) {
  const OnDisk disk(config_json("tiny_llama3").dump());
  EXPECT_EQ(as_native(disk.source, {}, {}).model->text(), "a llama3 of 2 layers");
}

TEST(ModelChoice, ADamagedConfigIsNamed) {
  const OnDisk disk("{\"model_type\": \"llama\", ");
  EXPECT_THAT(refusal<FormatError>([&] { as_native(disk.source, {}, {}); }),
              AllOf(HasSubstr("hf/config.json"), HasSubstr("not valid JSON")));
}

TEST(ModelChoice, AConfigOfAnotherModelIsNamed) {
  const OnDisk disk(R"({"model_type": "gpt2"})");
  EXPECT_THAT(refusal<ValueError>([&] { as_native(disk.source, {}, {}); }),
              AllOf(HasSubstr("hf/config.json"), HasSubstr("no key map for 'gpt2'"), HasSubstr("llama")));
}

// As the message about a missing field advises.
TEST(ModelChoice, AFlavorMakesUpForAnUnreadableConfig) {
  const OnDisk disk(R"({"model_type": "llama"})");
  EXPECT_THAT(refusal<FormatError>([&] { as_native(disk.source, {}, {}); }), HasSubstr("--flavor"));
  EXPECT_THAT(refusal<ShapeMismatchError>([&] { as_native(disk.source, by_flavor("llama3", "8B"), {}); }),
              AllOf(HasSubstr("/hf"), HasSubstr("[128256, 4096]")));
}

TEST(ModelChoice, AConfigOfAbsurdSizesIsRefusedAtOnce) {
  Json json = config_json("tiny_llama3");
  json["num_hidden_layers"] = 4096;
  const OnDisk large(json.dump());
  EXPECT_THAT(refusal<MissingKeyError>([&] { as_native(large.source, {}, {}); }),
              AllOf(HasSubstr("36846 of the tensors"), HasSubstr("and 36834 more")));
  json["num_hidden_layers"] = 1'000'000'000'000;
  const OnDisk absurd(json.dump());
  EXPECT_THAT(refusal<FormatError>([&] { as_native(absurd.source, {}, {}); }),
              HasSubstr("num_hidden_layers"));
}

TEST(ModelChoice, AnAbsentConfigIsNamed) {
  const CheckpointPtr source = random_model(config_path("tiny_llama3"));
  EXPECT_THAT(refusal<StorageError>([&] { as_native(source, by_config("/no/such/folder"), {}); }),
              AllOf(HasSubstr("/no/such/folder"), HasSubstr("no config.json")));
}

}  // namespace
}  // namespace milepost
