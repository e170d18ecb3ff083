#include "milepost/engine/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "engine/model_choice.h"
#include "engine/test_memory.h"
#include "milepost/base/error.h"
#include "milepost/engine/derived.h"
#include "milepost/engine/reader.h"
#include "storage/test_files.h"

namespace milepost {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Json = nlohmann::ordered_json;
using CheckpointPtr = std::shared_ptr<const Checkpoint>;

std::string config_path(const std::string& name) {
  return std::string(MILEPOST_TEST_DATA) + "/hf_config/" + name + ".json";
}
Json config_json(const std::string& name) {
  std::ifstream file(config_path(name));
  return Json::parse(file);
}
ModelChoice by_config(const std::string& path) {
  ModelChoice choice;
  choice.config = path;
  return choice;
}
ModelChoice by_flavor(const std::string& model, const std::string& flavor) {
  ModelChoice choice;
  choice.model = model;
  choice.flavor = flavor;
  return choice;
}

// The checkpoint of a config.json under Hugging Face's names, of random values.
CheckpointPtr random_model(const std::string& path, DType dtype = DType::kFloat32, bool fp8 = false) {
  return synthetic_hugging_face(
      named_model(Json::parse(std::ifstream(path))["model_type"] == "llama" ? "llama3" : "deepseek_v3",
                  std::nullopt, path),
      dtype, fp8, 7);
}

std::vector<std::byte> bytes_of(const CheckpointPtr& checkpoint, int64_t tensor) {
  const Catalog::Tensor& info = checkpoint->catalog().tensors()[static_cast<size_t>(tensor)];
  std::vector<std::byte> bytes(static_cast<size_t>(tensor_bytes(info)));
  TensorReader(checkpoint)
      .read_linear(tensor, Box::whole(info.shape), 0, static_cast<int64_t>(bytes.size()), bytes.data());
  return bytes;
}
std::vector<std::byte> bytes_of(const CheckpointPtr& checkpoint, std::string_view name) {
  return bytes_of(checkpoint, checkpoint->catalog().find_tensor(name).value());
}

void expect_equal(const CheckpointPtr& a, const CheckpointPtr& b) {
  ASSERT_EQ(a->catalog().tensors().size(), b->catalog().tensors().size());
  for (const Catalog::Tensor& tensor : a->catalog().tensors()) {
    const auto other = b->catalog().find_tensor(tensor.name);
    ASSERT_TRUE(other) << tensor.name;
    const Catalog::Tensor& theirs = b->catalog().tensors()[static_cast<size_t>(*other)];
    EXPECT_EQ(tensor.dtype, theirs.dtype) << tensor.name;
    EXPECT_EQ(tensor.shape, theirs.shape) << tensor.name;
    EXPECT_EQ(bytes_of(a, tensor.name), bytes_of(b, tensor.name)) << tensor.name;
  }
}

// The checkpoint without tensors whose names contain `part`, and with another one.
CheckpointPtr without(const CheckpointPtr& source, std::string_view part) {
  KeyMap map;
  for (size_t i = 0; i < source->catalog().tensors().size(); ++i) {
    const Catalog::Tensor& info = source->catalog().tensors()[i];
    if (info.name.find(part) == std::string::npos)
      map.add(info.name, info.dtype, info.shape, {whole_part(static_cast<int64_t>(i), info.shape)});
  }
  return derive(source, std::move(map));
}

template <typename E, typename Call>
std::string refusal(Call&& call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

// ---- there and back

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
  Json json = config_json("tiny_llama3");
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

// ---- which model it is

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

// ---- --like

struct Like {
  Like()
      : exported(as_hugging_face(random_model(config_path("tiny_llama3")),
                                 by_config(config_path("tiny_llama3")), {}, false)) {}
  void write(const std::string& name, std::string_view text) const {
    write_file(*posix_storage(), folder / name, text);
  }
  ConvertOptions files() const {
    ConvertOptions options;
    options.to = CheckpointFormat::kSafetensors;
    add_hugging_face_files(exported, {}, false, folder.path(), &options);
    return options;
  }
  TestFolder folder;
  NamedModel exported;
};

TEST(LikeFolder, LendsItsFiles) {
  const Like like;
  like.write("config.json", config_json("tiny_llama3").dump());
  like.write("tokenizer.json", "{}");
  like.write("generation_config.json", "{}");
  like.write("model.bin", "no");
  std::vector<std::string> names;
  for (const CompanionFile& file : like.files().companions) names.push_back(file.name);
  EXPECT_THAT(names,
              ::testing::UnorderedElementsAre("config.json", "tokenizer.json", "generation_config.json"));
}

TEST(LikeFolder, MustExist) {
  const Like like;
  ConvertOptions options;
  EXPECT_THAT(refusal<StorageError>([&] {
                add_hugging_face_files(like.exported, {}, false, like.folder / "absent", &options);
              }),
              AllOf(HasSubstr("absent"), HasSubstr("no such folder")));
  like.write("file", "");
  EXPECT_THROW(add_hugging_face_files(like.exported, {}, false, like.folder / "file", &options),
               StorageError);
}

TEST(LikeFolder, OfAnotherModelIsRefused) {
  const Like like;
  like.write("config.json", config_json("tiny_mtp").dump());
  EXPECT_THAT(refusal<ValueError>([&] { like.files(); }), HasSubstr("it is of a deepseek_v3"));
  Json json = config_json("tiny_llama3");
  json["num_attention_heads"] = 2, json["head_dim"] = 32, json["num_key_value_heads"] = 1;
  like.write("config.json", json.dump());
  EXPECT_THAT(refusal<ValueError>([&] { like.files(); }),
              AllOf(HasSubstr("config.json"), HasSubstr("its n_heads is 2, not 4")));
}

TEST(LikeFolder, ItsIndexMustNameEveryTensor) {
  const Like like;
  like.write("model.safetensors.index.json",
             R"({"weight_map": {"model.norm.weight": "model-00001-of-00001.safetensors"}})");
  const ConvertOptions options = like.files();
  EXPECT_THAT(
      refusal<MissingKeyError>([&] { convert(like.exported.checkpoint, like.folder / "out", options); }),
      AllOf(HasSubstr("20 of the tensors are not in the index"), HasSubstr("model.embed_tokens.weight")));
  EXPECT_FALSE(posix_storage()->stat(like.folder / "out"));
}

TEST(LikeFolder, ItsIndexMayNameOnlyPlainSafetensorsFiles) {
  for (const char* file : {"../x.safetensors", "a/x.safetensors", "/x.safetensors", "config.json",
                           "model.safetensors.index.json", "..", ""}) {
    const Like like;
    like.write("model.safetensors.index.json", Json{{"weight_map", {{"model.norm.weight", file}}}}.dump());
    EXPECT_THAT(refusal<FormatError>([&] { like.files(); }),
                AllOf(HasSubstr("model.safetensors.index.json"), HasSubstr("model.norm.weight")))
        << file;
  }
}

}  // namespace
}  // namespace milepost
