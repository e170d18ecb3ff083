#include "milepost/adapt/hf_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "milepost/base/error.h"

namespace milepost::adapt {
namespace {

using flavor::DeepSeekV3;
using flavor::Llama3;
using flavor::Model;
using flavor::Rope;
using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

std::string text_of(const std::string& name) {
  std::ifstream file(MILEPOST_TEST_DATA "/hf_config/" + name + ".json");
  return {std::istreambuf_iterator<char>(file), {}};
}

Json json_of(const std::string& name) { return Json::parse(text_of(name)); }
HfConfig read(const std::string& text) { return read_hf_config(text, "config.json"); }
HfConfig read_file(const std::string& name) { return read(text_of(name)); }
Llama3 llama(const HfConfig& config) { return std::get<Llama3>(config.model.dims); }
DeepSeekV3 deepseek(const HfConfig& config) { return std::get<DeepSeekV3>(config.model.dims); }

// What is wrong with the file once the members of `change` are set in it, or "REMOVED".
std::string refusal_of(const std::string& name, const char* change) {
  Json json = json_of(name);
  const Json changes = Json::parse(change);
  for (const auto& [key, value] : changes.items()) {
    if (value == "REMOVED") {
      json.erase(key);
    } else {
      json[key] = value;
    }
  }
  try {
    read(json.dump());
  } catch (const FormatError& error) {
    EXPECT_EQ(error.path(), "config.json");
    return error.key() + ": " + error.summary();
  }
  return "accepted";
}

std::string refusal_of_text(const std::string& text) {
  try {
    read(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

// Dimensions that a fixture's own description (variant.json) gives, not what some other reader made of it.
TEST(HfConfig, ReadsTheTinyLlama) {
  const HfConfig config = read_file("tiny_llama3");
  Llama3 expected{.dim = 64,
                  .n_layers = 2,
                  .n_heads = 4,
                  .n_kv_heads = 2,
                  .head_dim = 16,
                  .hidden_dim = 112,
                  .vocab_size = 96};
  expected.rope = {.theta = 500000,
                   .max_seq_len = 131072,
                   .scaling = Rope::Scaling::kLlama,
                   .factor = 8,
                   .low_freq_factor = 1,
                   .high_freq_factor = 4,
                   .original_max_seq_len = 64};
  EXPECT_EQ(llama(config), expected);
  EXPECT_EQ(config.model.name, "");
  EXPECT_EQ(config.dtype, DType::kFloat32);
  EXPECT_FALSE(config.quantised_fp8);
}

DeepSeekV3 tiny_deepseek() {
  DeepSeekV3 dims{.dim = 64,
                  .n_layers = 3,
                  .n_dense_layers = 1,
                  .n_heads = 4,
                  .vocab_size = 96,
                  .q_lora_rank = 24,
                  .kv_lora_rank = 32,
                  .qk_nope_head_dim = 16,
                  .qk_rope_head_dim = 8,
                  .v_head_dim = 16,
                  .mscale = 1,
                  .hidden_dim = 96,
                  .moe_hidden_dim = 16,
                  .num_experts = 8,
                  .num_shared_experts = 1,
                  .top_k = 3,
                  .score_func = DeepSeekV3::Score::kSigmoid,
                  .num_expert_groups = 4,
                  .num_limited_groups = 2,
                  .route_scale = 2.5,
                  .route_norm = true};
  dims.rope = {.theta = 10000,
               .max_seq_len = 163840,
               .scaling = Rope::Scaling::kYarn,
               .factor = 40,
               .original_max_seq_len = 4096};
  return dims;
}

TEST(HfConfig, ReadsTheTinySigmoidRoutedDeepSeek) {
  EXPECT_EQ(deepseek(read_file("tiny_sigmoid_groups")), tiny_deepseek());
}

TEST(HfConfig, ReadsTheTinySoftmaxRoutedDeepSeek) {
  DeepSeekV3 expected = tiny_deepseek();
  expected.n_layers = 2;
  expected.q_lora_rank = 0;
  expected.mscale = 0.7;
  expected.hidden_dim = 80;
  expected.num_experts = 6;
  expected.num_shared_experts = 2;
  expected.top_k = 2;
  expected.score_func = DeepSeekV3::Score::kSoftmax;
  expected.num_expert_groups = expected.num_limited_groups = 0;
  expected.route_scale = 1;
  expected.route_norm = false;
  expected.rope.max_seq_len = 96;
  expected.rope.factor = 4;
  expected.rope.original_max_seq_len = 24;
  EXPECT_EQ(deepseek(read_file("tiny_softmax")), expected);
}

TEST(HfConfig, ReadsMtpLayers) { EXPECT_EQ(deepseek(read_file("tiny_mtp")).num_mtp_layers, 2); }

TEST(HfConfig, NamesTheFlavorOfReleases) {
  const HfConfig llama_8b = read_file("llama_3_1_8b");
  EXPECT_EQ(llama_8b.model.text(), "llama3 8B");
  EXPECT_EQ(llama_8b.model.dims, flavor::find("llama3", "8B").dims);
  EXPECT_EQ(llama_8b.dtype, DType::kBFloat16);

  const HfConfig v3 = read_file("deepseek_v3");
  EXPECT_EQ(v3.model.text(), "deepseek_v3 671B");
  EXPECT_EQ(deepseek(v3).num_mtp_layers, 1);
  EXPECT_EQ(deepseek(v3).norm_eps, 1e-6);
  EXPECT_EQ(deepseek(v3).rope.max_seq_len, 163840);
  EXPECT_TRUE(v3.quantised_fp8);
  EXPECT_EQ(v3.quantised_block[0], 128);
  EXPECT_EQ(v3.quantised_block[1], 128);

  const HfConfig v2_lite = read_file("deepseek_v2_lite");
  EXPECT_EQ(v2_lite.model.text(), "deepseek_v3 16B");
  EXPECT_EQ(deepseek(v2_lite).mscale, 0.707);
}

TEST(HfConfig, ReadsTheFieldsOfTransformersFive) {
  const HfConfig config = read_file("llama_3_2_1b_transformers5");
  EXPECT_EQ(config.model.text(), "llama3 1B");
  EXPECT_EQ(config.dtype, DType::kBFloat16);
  EXPECT_TRUE(llama(config).tied_embeddings);
  EXPECT_EQ(llama(config).rope.theta, 500000);
  EXPECT_EQ(llama(config).rope.factor, 32);
  EXPECT_EQ(llama(config).rope.scaling, Rope::Scaling::kLlama);
}

TEST(HfConfig, TakesTheDefaultsOfEachClassForAbsentFields) {
  Json json = json_of("deepseek_v3");
  for (const char* name : {"scoring_func", "topk_method", "norm_topk_prob", "routed_scaling_factor",
                           "rms_norm_eps", "torch_dtype", "num_nextn_predict_layers", "quantization_config",
                           "rope_scaling", "max_position_embeddings", "num_key_value_heads"}) {
    json.erase(name);
  }
  const HfConfig v3 = read(json.dump());
  EXPECT_EQ(deepseek(v3).score_func, DeepSeekV3::Score::kSigmoid);
  EXPECT_TRUE(deepseek(v3).route_norm);
  EXPECT_EQ(deepseek(v3).route_scale, 2.5);
  EXPECT_EQ(deepseek(v3).num_expert_groups, 8);
  EXPECT_EQ(deepseek(v3).norm_eps, 1e-6);
  EXPECT_EQ(deepseek(v3).rope, (Rope{.theta = 10000, .max_seq_len = 4096}));
  EXPECT_EQ(deepseek(v3).num_mtp_layers, 0);
  EXPECT_EQ(v3.dtype, std::nullopt);

  json["model_type"] = "deepseek_v2";
  const HfConfig v2 = read(json.dump());
  EXPECT_EQ(deepseek(v2).score_func, DeepSeekV3::Score::kSoftmax);
  EXPECT_FALSE(deepseek(v2).route_norm);
  EXPECT_EQ(deepseek(v2).route_scale, 1);
  EXPECT_EQ(deepseek(v2).num_expert_groups, 0);  // greedy looks at no groups
  json["topk_method"] = "group_limited_greedy";
  EXPECT_EQ(deepseek(read(json.dump())).num_expert_groups, 8);

  Json plain = json_of("tiny_llama3");
  plain.erase("head_dim");
  plain.erase("num_key_value_heads");
  plain["rope_scaling"] = nullptr;
  const Llama3 dims = llama(read(plain.dump()));
  EXPECT_EQ(dims.head_dim, 16);
  EXPECT_EQ(dims.n_kv_heads, 4);
  EXPECT_EQ(dims.rope.scaling, Rope::Scaling::kNone);
}

TEST(HfConfig, WhatIsWrittenReadsAsTheSameModel) {
  std::vector<Model> models = flavor::all();
  for (const char* name : {"tiny_llama3", "tiny_sigmoid_groups", "tiny_softmax", "tiny_mtp", "deepseek_v3",
                           "deepseek_v2_lite", "llama_3_2_1b_transformers5"}) {
    models.push_back(read_file(name).model);
  }
  Model unscaled = flavor::find("deepseek_v3", "671B");
  std::get<DeepSeekV3>(unscaled.dims).mscale = 0;
  Model yarn_llama = flavor::find("llama3", "8B");
  std::get<Llama3>(yarn_llama.dims).rope = std::get<DeepSeekV3>(unscaled.dims).rope;
  Model plain = flavor::find("llama3", "8B");
  std::get<Llama3>(plain.dims).rope = {.theta = 10000, .max_seq_len = 2048};
  models.insert(models.end(), {unscaled, yarn_llama, plain});
  for (const Model& model : models) {
    for (const bool fp8 : {false, true}) {
      const HfConfig config = read(write_hf_config(model, DType::kBFloat16, fp8));
      EXPECT_EQ(config.model.dims, model.dims) << model.text();
      EXPECT_EQ(config.model.name, model.name);
      EXPECT_EQ(config.dtype, DType::kBFloat16);
      EXPECT_EQ(config.quantised_fp8, fp8);
    }
  }
}

// The fixtures' files were checked against transformers: whatever they say, ours says too.
TEST(HfConfig, WritesWhatTransformersWasCheckedWith) {
  for (const char* name : {"tiny_llama3", "tiny_sigmoid_groups", "tiny_softmax", "tiny_mtp"}) {
    // Members compare in any order.
    const auto written =
        nlohmann::json::parse(write_hf_config(read_file(name).model, DType::kFloat32, false));
    const auto checked = nlohmann::json::parse(text_of(name));
    for (const auto& [key, value] : checked.items()) {
      ASSERT_TRUE(written.contains(key)) << name << " " << key;
      EXPECT_EQ(written[key], value) << name << " " << key;
    }
  }
}

TEST(HfConfig, WritesTheSpecialIdsOfAKnownVocabulary) {
  const auto written = [](const char* model, const char* flavor) {
    return Json::parse(write_hf_config(flavor::find(model, flavor), DType::kFloat32, false));
  };
  EXPECT_EQ(written("llama3", "8B")["bos_token_id"], 128000);
  EXPECT_EQ(written("deepseek_v3", "671B")["eos_token_id"], 1);
  EXPECT_TRUE(written("deepseek_v3", "debugmodel")["eos_token_id"].is_null());
}

TEST(HfConfig, UpdateKeepsWhatItDoesNotSet) {
  const std::string text = R"({"zeta": 1e-05, "torch_dtype": "float32", "a": {"z": [1, 2.5], "b": null},)"
                           R"( "quantization_config": {"quant_method": "fp8"}, "name": "läma"})";
  EXPECT_EQ(update_hf_config(text, "config.json", {}, DType::kBFloat16, false),
            "{\n  \"zeta\": 1e-05,\n  \"torch_dtype\": \"bfloat16\",\n  \"a\": {\n    \"z\": [\n      1,\n   "
            "   2.5\n"
            "    ],\n    \"b\": null\n  },\n  \"name\": \"läma\"\n}\n");
  const Json quantised = Json::parse(update_hf_config(text, "config.json", {}, DType::kBFloat16, true));
  EXPECT_EQ(quantised["quantization_config"]["weight_block_size"], Json({128, 128}));
  EXPECT_EQ(std::next(quantised.begin(), 3).key(), "quantization_config");
}

TEST(HfConfig, UpdateSetsTheDtypeUnderTheNameInUse) {
  const auto updated = [](const char* text) {
    return Json::parse(update_hf_config(text, "config.json", {}, DType::kFloat16, false)).dump();
  };
  EXPECT_EQ(updated("{}"), R"({"torch_dtype":"float16"})");
  EXPECT_EQ(updated(R"({"dtype":"float32"})"), R"({"dtype":"float16"})");
  EXPECT_EQ(updated(R"({"torch_dtype":null,"dtype":"float32"})"),
            R"({"torch_dtype":"float16","dtype":"float16"})");
}

TEST(HfConfig, UpdateSaysWhichTensorsThereAre) {
  const auto updated = [](const char* text, const Model& model) {
    return Json::parse(update_hf_config(text, "config.json", model, DType::kFloat16, false)).dump();
  };
  const Model tied = flavor::find("llama3", "1B"), untied = flavor::find("llama3", "8B");
  EXPECT_EQ(updated("{}", tied), R"({"tie_word_embeddings":true,"torch_dtype":"float16"})");
  EXPECT_EQ(updated("{}", untied), R"({"torch_dtype":"float16"})");
  EXPECT_EQ(updated(R"({"tie_word_embeddings":true,"num_nextn_predict_layers":1})", untied),
            R"({"tie_word_embeddings":false,"num_nextn_predict_layers":1,"torch_dtype":"float16"})");
  Model stages = flavor::find("deepseek_v3", "671B");
  EXPECT_EQ(updated(R"({"num_nextn_predict_layers":1})", stages),
            R"({"num_nextn_predict_layers":0,"torch_dtype":"float16"})");
  EXPECT_EQ(updated("{}", stages), R"({"torch_dtype":"float16"})");
  std::get<flavor::DeepSeekV3>(stages.dims).num_mtp_layers = 2;
  EXPECT_EQ(updated("{}", stages), R"({"num_nextn_predict_layers":2,"torch_dtype":"float16"})");
}

TEST(HfConfig, RefusesFieldsThatAreMissingOrWrong) {
  const struct {
    const char *file, *change, *expected;
  } kCases[] = {
      {"tiny_llama3", R"({"hidden_size": "REMOVED"})", "hidden_size: the field is missing"},
      {"tiny_llama3", R"({"hidden_size": null})", "hidden_size: the field is missing"},
      {"tiny_llama3", R"({"hidden_size": "64"})", "hidden_size: not an integer"},
      {"tiny_llama3", R"({"hidden_size": 64.0})", "hidden_size: not an integer"},
      {"tiny_llama3", R"({"hidden_size": 0})", "hidden_size: 0 is not in"},
      {"tiny_llama3", R"({"hidden_size": -64})", "hidden_size: -64 is not in"},
      {"tiny_llama3", R"({"hidden_size": 18446744073709551615})", "hidden_size: 18446744073709551615 is not"},
      {"tiny_llama3", R"({"num_hidden_layers": 1000000})", "num_hidden_layers: 1000000 is not in"},
      {"tiny_llama3", R"({"num_key_value_heads": 3})", "num_key_value_heads: 3 does not divide"},
      {"tiny_llama3", R"({"num_key_value_heads": 8})", "num_key_value_heads: 8 is not in [1, 4]"},
      {"tiny_llama3", R"({"head_dim": 15})", "head_dim: 15; RoPE turns pairs"},
      {"tiny_llama3", R"({"head_dim": null, "num_attention_heads": 6})", "head_dim: the field is missing"},
      {"tiny_llama3", R"({"tie_word_embeddings": 1})", "tie_word_embeddings: neither true nor false"},
      {"tiny_llama3", R"({"rms_norm_eps": "1e-5"})", "rms_norm_eps: not a number"},
      {"tiny_llama3", R"({"rope_theta": 0})", "rope_theta: 0 is not in"},
      {"tiny_llama3", R"({"torch_dtype": 16})", "torch_dtype: not a string"},
      {"tiny_llama3", R"({"torch_dtype": "bf17"})", "torch_dtype: unknown dtype 'bf17'"},
      {"tiny_llama3", R"({"rope_scaling": 8})", "rope_scaling: not a JSON object"},
      {"tiny_llama3", R"({"rope_scaling": {"factor": 8}})", "rope_scaling.rope_type: the field is missing"},
      {"tiny_llama3", R"({"rope_scaling": {"rope_type": "llama3"}})",
       "rope_scaling.factor: the field is missing"},
      {"tiny_llama3", R"({"rope_scaling": {"rope_type": "llama3", "factor": 8}})",
       "rope_scaling.original_max_position_embeddings: the field is missing"},
      {"tiny_llama3", R"({"quantization_config": []})", "quantization_config: not a JSON object"},
      {"tiny_llama3", R"({"model_type": "REMOVED"})", "model_type: the field is missing"},
      {"deepseek_v3", R"({"q_lora_rank": "REMOVED"})", "q_lora_rank: the field is missing"},
      {"deepseek_v3", R"({"n_routed_experts": null})", "n_routed_experts: the field is missing"},
      {"deepseek_v3", R"({"num_experts_per_tok": 257})", "num_experts_per_tok: 257 is not in [1, 256]"},
      {"deepseek_v3", R"({"first_k_dense_replace": 62})", "first_k_dense_replace: 62 is not in [0, 61]"},
      {"deepseek_v3", R"({"n_group": 7})", "n_group: 7 does not divide n_routed_experts, 256"},
      {"deepseek_v3", R"({"topk_group": 9})", "topk_group: 9 of 8 groups"},
      {"deepseek_v3", R"({"topk_group": null})", "topk_group: 0 of 8 groups"},
      {"deepseek_v3", R"({"n_routed_experts": 65536})", "n_routed_experts: 65536 in each of 61 layers"},
      {"deepseek_v3", R"({"quantization_config": {"quant_method": "fp8", "weight_block_size": [128]}})",
       "quantization_config.weight_block_size: not two integers"},
      {"deepseek_v3", R"({"quantization_config": {"quant_method": "fp8", "weight_block_size": [0, 128]}})",
       "quantization_config.weight_block_size: 0 is not in"},
  };
  for (const auto& [file, change, expected] : kCases) {
    EXPECT_THAT(refusal_of(file, change), ::testing::StartsWith(expected));
  }
}

TEST(HfConfig, RefusesSettingsThatTheModelsDoNotHave) {
  const struct {
    const char *file, *change, *expected;
  } kCases[] = {
      {"tiny_llama3", R"({"attention_bias": true})", "attention_bias: the models here have no biases"},
      {"tiny_llama3", R"({"mlp_bias": true})", "mlp_bias: the models here have no biases"},
      {"tiny_llama3", R"({"hidden_act": "gelu"})", "hidden_act: 'gelu'; the models here have silu"},
      {"tiny_llama3", R"({"partial_rotary_factor": 0.5})",
       "partial_rotary_factor: heads that rotate in part"},
      {"tiny_llama3", R"({"rope_scaling": {"type": "linear", "factor": 2}})",
       "rope_scaling.rope_type: RoPE scaling 'linear' is not supported"},
      {"deepseek_v3", R"({"num_key_value_heads": 8})", "num_key_value_heads: 8; every head"},
      {"deepseek_v3", R"({"moe_layer_freq": 2})", "moe_layer_freq: after the dense layers"},
      {"deepseek_v3", R"({"scoring_func": "sqrtsoftplus"})", "scoring_func: 'sqrtsoftplus'; known are"},
      {"deepseek_v3", R"({"topk_method": "random"})", "topk_method: 'random'; known are"},
      {"deepseek_v3", R"({"rope_interleave": false})", "rope_interleave: only neighbouring elements"},
      {"deepseek_v3", R"({"quantization_config": {"quant_method": "fp8", "fmt": "e5m2"}})",
       "quantization_config.fmt: 'e5m2'; fp8 weights are e4m3 here"},
  };
  for (const auto& [file, change, expected] : kCases) {
    EXPECT_THAT(refusal_of(file, change), ::testing::StartsWith(expected));
  }
}

// m(x) = 0.1 x ln(40) + 1: m(1) = 1.3689, m(1) / m(0.5) = 1.1557.
TEST(HfConfig, RefusesYarnThatScalesTheRotation) {
  EXPECT_THAT(refusal_of("deepseek_v3", R"({"rope_scaling": {"type": "yarn", "factor": 40}})"),
              HasSubstr("cos and sin are scaled by 1.36889"));
  EXPECT_THAT(refusal_of("deepseek_v3", R"({"rope_scaling":
                         {"type": "yarn", "factor": 40, "mscale": 1.0, "mscale_all_dim": 0.5}})"),
              HasSubstr("rope_scaling.mscale: cos and sin are scaled by 1.15572"));
  EXPECT_EQ(refusal_of("deepseek_v3", R"({"rope_scaling":
                       {"type": "yarn", "factor": 40, "attention_factor": 1.0}})"),
            "accepted");
  EXPECT_THAT(refusal_of("deepseek_v3", R"({"rope_scaling":
                         {"type": "yarn", "factor": 40, "attention_factor": 1.0, "truncate": false}})"),
              HasSubstr("rope_scaling.truncate"));
}

TEST(HfConfig, RefusesAnotherModelByName) {
  try {
    read(R"({"model_type": "gpt2"})");
    FAIL() << "accepted";
  } catch (const ValueError& error) {
    EXPECT_EQ(error.path(), "config.json");
    EXPECT_EQ(error.summary(), "there is no key map for 'gpt2'; known are llama, deepseek_v2, deepseek_v3");
  }
}

TEST(HfConfig, RefusesMoreParametersThanAnyModelHas) {
  EXPECT_THAT(refusal_of("tiny_llama3", R"({"hidden_size": 16777216, "intermediate_size": 16777216,
                                            "num_hidden_layers": 4096})"),
              HasSubstr("more than 2^56 parameters"));
  EXPECT_THAT(refusal_of("tiny_llama3", R"({"hidden_size": 16777216, "num_attention_heads": 16777216,
                                            "num_key_value_heads": null, "head_dim": 16777216})"),
              HasSubstr("more than 2^56 parameters"));
}

TEST(HfConfig, RefusesTextThatIsNoReasonableJsonObject) {
  EXPECT_THAT(refusal_of_text(""), HasSubstr("at byte 0: not valid JSON"));
  EXPECT_THAT(refusal_of_text("[1]"), HasSubstr("not a JSON object"));
  EXPECT_THAT(refusal_of_text(R"({"model_type": "llama",})"), HasSubstr("at byte 23: not valid JSON"));
  EXPECT_THAT(refusal_of_text("{\"a\": \"\xff\"}"), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal_of_text(R"({"a": 1e999})"), HasSubstr("number that no 64-bit float holds"));
  EXPECT_THAT(refusal_of_text(R"({"a": NaN})"), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal_of_text(R"({"a": {"b": 1, "c": 2, "b": 3}})"), HasSubstr("'b': the name occurs twice"));
  EXPECT_THAT(refusal_of_text(R"({"a": )" + std::string(100000, '[')), HasSubstr("more than 32 levels"));
  EXPECT_THAT(refusal_of_text(std::string((16 << 20) + 1, ' ')), HasSubstr("a config has at most"));
  std::string many = "{\"a\": [0";
  for (int i = 0; i < 1000000; ++i) many += ",0";
  EXPECT_THAT(refusal_of_text(many + "]}"), HasSubstr("more than 1000000 values"));
  std::string names = "{\"a\": 0";
  for (int i = 0; i < 10001; ++i) names += ",\"" + std::to_string(i) + "\": 0";
  EXPECT_THAT(refusal_of_text(names + "}"), HasSubstr("more than 10000 names"));
}

// Every file cut short or with a byte changed is read or refused; nothing else happens.
TEST(HfConfig, DamagedTextIsReadOrRefused) {
  const std::string text = text_of("tiny_softmax");
  for (size_t i = 0; i < text.size(); ++i) {
    refusal_of_text(text.substr(0, i));
    for (const char replacement : {'"', '9', '{'}) {
      std::string damaged = text;
      damaged[i] = replacement;
      refusal_of_text(damaged);
    }
  }
}

}  // namespace
}  // namespace milepost::adapt
