// What add_hugging_face_files() takes from the folder to be like.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "engine/test_models.h"
#include "milepost/base/error.h"
#include "milepost/engine/model.h"
#include "storage/test_files.h"

namespace milepost {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

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

TEST(LikeFolder, ItsIndexNeedNotNameWhatMayBeAbsent) {
  const std::string path = config_path("tiny_softmax");
  const NamedModel exported = as_hugging_face(random_model(path), by_config(path), {}, false);
  Json weight_map;
  for (const Catalog::Tensor& tensor : exported.checkpoint->catalog().tensors()) {
    if (tensor.name.find("e_score_correction_bias") != std::string::npos) continue;
    const bool is_of_layer = tensor.name.starts_with("model.layers.1.");
    weight_map[tensor.name] = is_of_layer ? "layer.safetensors" : "rest.safetensors";
  }
  const TestFolder folder;
  write_file(*posix_storage(), folder / "model.safetensors.index.json",
             Json{{"weight_map", weight_map}}.dump());
  ConvertOptions options;
  options.to = CheckpointFormat::kSafetensors;
  add_hugging_face_files(exported, {}, false, folder.path(), &options);
  const std::map<std::string, std::string> file_of(options.weight_map.begin(), options.weight_map.end());
  EXPECT_EQ(file_of.at("model.layers.1.mlp.gate.e_score_correction_bias"), "layer.safetensors");
  convert(exported.checkpoint, folder / "out", options);
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
