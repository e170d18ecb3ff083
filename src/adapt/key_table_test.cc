#include "milepost/adapt/key_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "adapt/test_tensors.h"
#include "milepost/base/checked_math.h"
#include "milepost/base/error.h"

namespace milepost::adapt {
namespace {

using flavor::DeepSeekV3;
using flavor::Llama3;
using flavor::Model;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

std::vector<KeyEntry> entries_of(const Model& model) { return expand(key_table(model.model()), model); }

Model with_mtp(Model model, int64_t stages) {
  std::get<DeepSeekV3>(model.dims).num_mtp_layers = stages;
  return model;
}

// "native shape <- first name of Hugging Face's", an entry a line.
std::vector<std::string> lines_of(const Model& model) {
  std::vector<std::string> lines;
  for (const KeyEntry& entry : entries_of(model)) {
    if (entry.row->kind == KeyKind::kOnlyHf) {
      lines.push_back("only " + entry.hf[0]);
      continue;
    }
    std::string line = entry.native + " " + dims_text(entry.shape) + " <-";
    for (const std::string& name : entry.hf) line += " " + name;
    lines.push_back(line);
  }
  return lines;
}

TEST(KeyTable, NamesEveryTensorOfLlama) {
  const std::string layer = "model.layers.0.";
  EXPECT_THAT(
      lines_of({"", tiny_llama()}),
      ElementsAre("tok_embeddings.weight [10, 8] <- model.embed_tokens.weight",
                  "layers.0.attention.qkv_linear.wq.weight [16, 8] <- " + layer + "self_attn.q_proj.weight",
                  "layers.0.attention.qkv_linear.wk.weight [8, 8] <- " + layer + "self_attn.k_proj.weight",
                  "layers.0.attention.qkv_linear.wv.weight [8, 8] <- " + layer + "self_attn.v_proj.weight",
                  "layers.0.attention.wo.weight [8, 16] <- " + layer + "self_attn.o_proj.weight",
                  "layers.0.feed_forward.w1.weight [12, 8] <- " + layer + "mlp.gate_proj.weight",
                  "layers.0.feed_forward.w2.weight [8, 12] <- " + layer + "mlp.down_proj.weight",
                  "layers.0.feed_forward.w3.weight [12, 8] <- " + layer + "mlp.up_proj.weight",
                  "layers.0.attention_norm.weight [8] <- " + layer + "input_layernorm.weight",
                  "layers.0.ffn_norm.weight [8] <- " + layer + "post_attention_layernorm.weight",
                  "only " + layer + "self_attn.rotary_emb.inv_freq", "norm.weight [8] <- model.norm.weight",
                  "lm_head.weight [10, 8] <- lm_head.weight"));
}

// Attention of the tiny deepseek_v3.
std::vector<std::string> attention_lines(const std::string& native, const std::string& hf) {
  const std::string attention = native + "attention.", self_attn = hf + "self_attn.";
  return {attention + "wq_a.weight [6, 8] <- " + self_attn + "q_a_proj.weight",
          attention + "q_norm.weight [6] <- " + self_attn + "q_a_layernorm.weight",
          attention + "wq_b.weight [12, 6] <- " + self_attn + "q_b_proj.weight",
          attention + "wkv_a.weight [7, 8] <- " + self_attn + "kv_a_proj_with_mqa.weight",
          attention + "kv_norm.weight [5] <- " + self_attn + "kv_a_layernorm.weight",
          attention + "wkv_b.weight [14, 5] <- " + self_attn + "kv_b_proj.weight",
          attention + "wo.weight [8, 6] <- " + self_attn + "o_proj.weight",
          native + "attention_norm.weight [8] <- " + hf + "input_layernorm.weight",
          native + "ffn_norm.weight [8] <- " + hf + "post_attention_layernorm.weight"};
}

std::vector<std::string> moe_lines(const std::string& native, const std::string& hf) {
  const std::string moe = native + "moe.", inner = moe + "routed_experts.inner_experts.", mlp = hf + "mlp.";
  const auto experts = [&](const std::string& matrix) {
    return mlp + "experts.0." + matrix + " " + mlp + "experts.1." + matrix;
  };
  return {moe + "expert_bias_E [2] <- " + mlp + "gate.e_score_correction_bias",
          inner + "w1_EFD [2, 7, 8] <- " + experts("gate_proj.weight"),
          inner + "w2_EDF [2, 8, 7] <- " + experts("down_proj.weight"),
          inner + "w3_EFD [2, 7, 8] <- " + experts("up_proj.weight"),
          moe + "router.gate.weight [2, 8] <- " + mlp + "gate.weight",
          moe + "shared_experts.w1.weight [21, 8] <- " + mlp + "shared_experts.gate_proj.weight",
          moe + "shared_experts.w2.weight [8, 21] <- " + mlp + "shared_experts.down_proj.weight",
          moe + "shared_experts.w3.weight [21, 8] <- " + mlp + "shared_experts.up_proj.weight"};
}

TEST(KeyTable, NamesEveryTensorOfDeepSeekWithItsMtpStage) {
  std::vector<std::string> wanted = {"tok_embeddings.weight [10, 8] <- model.embed_tokens.weight"};
  const auto append = [&](const std::vector<std::string>& lines) {
    wanted.insert(wanted.end(), lines.begin(), lines.end());
  };
  append(attention_lines("layers.0.", "model.layers.0."));
  append({"layers.0.feed_forward.w1.weight [12, 8] <- model.layers.0.mlp.gate_proj.weight",
          "layers.0.feed_forward.w2.weight [8, 12] <- model.layers.0.mlp.down_proj.weight",
          "layers.0.feed_forward.w3.weight [12, 8] <- model.layers.0.mlp.up_proj.weight",
          "only model.layers.0.self_attn.rotary_emb.inv_freq"});
  append(attention_lines("layers.1.", "model.layers.1."));
  append(moe_lines("layers.1.", "model.layers.1."));
  append({"only model.layers.1.self_attn.rotary_emb.inv_freq"});
  append(attention_lines("mtp_layers.0.", "model.layers.2."));
  append(moe_lines("mtp_layers.0.", "model.layers.2."));
  append({"mtp_layers.0.enorm.weight [8] <- model.layers.2.enorm.weight",
          "mtp_layers.0.hnorm.weight [8] <- model.layers.2.hnorm.weight",
          "mtp_layers.0.eh_proj.weight [8, 16] <- model.layers.2.eh_proj.weight",
          "mtp_layers.0.mtp_norm.weight [8] <- model.layers.2.shared_head.norm.weight",
          "only model.layers.2.embed_tokens.weight", "only model.layers.2.shared_head.head.weight",
          "only model.layers.2.self_attn.rotary_emb.inv_freq", "norm.weight [8] <- model.norm.weight",
          "lm_head.weight [10, 8] <- lm_head.weight"});
  EXPECT_THAT(lines_of({"", tiny_deepseek()}), ElementsAreArray(wanted));
}

TEST(KeyTable, WithoutQueryRankThereIsOneQueryProjection) {
  DeepSeekV3 dims = tiny_deepseek();
  dims.q_lora_rank = 0;
  const std::vector<std::string> lines = lines_of({"", dims});
  EXPECT_EQ(lines[1], "layers.0.attention.wq.weight [12, 8] <- model.layers.0.self_attn.q_proj.weight");
  for (const std::string& line : lines) EXPECT_EQ(line.find("wq_a"), std::string::npos) << line;
}

TEST(KeyTable, WithoutSharedExpertsThereAreNone) {
  DeepSeekV3 dims = tiny_deepseek();
  dims.num_shared_experts = 0;
  for (const std::string& line : lines_of({"", dims}))
    EXPECT_EQ(line.find("shared_experts"), std::string::npos) << line;
}

struct Counts {
  int64_t native = 0, hf = 0;
};

Counts counts_of(const Model& model) {
  Counts counts;
  for (const KeyEntry& entry : entries_of(model)) {
    if (entry.row->kind == KeyKind::kOnlyHf) continue;
    ++counts.native;
    counts.hf += static_cast<int64_t>(entry.hf.size());
  }
  return counts;
}

TEST(KeyTable, CountsAreThoseOfTorchTitan) {
  const Counts debug = counts_of(with_mtp(flavor::find("deepseek_v3", "debugmodel"), 1));
  EXPECT_EQ(debug.native, 107);
  EXPECT_EQ(debug.hf, 233);
  const Counts large = counts_of(flavor::find("deepseek_v3", "671B"));
  EXPECT_EQ(large.native, 1025);
  EXPECT_EQ(large.hf, 45395);
}

// Each flavor as the registry has it, and DeepSeek's with stages too.
std::vector<Model> many_models() {
  std::vector<Model> models = flavor::all();
  const size_t count = models.size();
  for (size_t i = 0; i < count; ++i) {
    if (models[i].model() == "deepseek_v3") models.push_back(with_mtp(models[i], 2));
  }
  return models;
}

TEST(KeyTable, ShapesAddUpToTheParametersOfEveryFlavor) {
  for (const Model& model : many_models()) {
    int64_t total = 0, buffers = 0;
    for (const KeyEntry& entry : entries_of(model)) {
      if (entry.row->kind == KeyKind::kOnlyHf || entry.export_absent) continue;
      int64_t size = 0;
      ASSERT_TRUE(checked_product(entry.shape, &size));
      (entry.native.ends_with("expert_bias_E") ? buffers : total) += size;
    }
    EXPECT_EQ(total, flavor::num_parameters(model)) << model.text();
    if (const auto* dims = std::get_if<DeepSeekV3>(&model.dims)) {
      EXPECT_EQ(buffers, (dims->n_layers - dims->n_dense_layers + dims->num_mtp_layers) * dims->num_experts);
    } else {
      EXPECT_EQ(buffers, 0);
    }
  }
}

TEST(KeyTable, NoTwoEntriesShareANameAndExpertsDivideTheirStack) {
  for (const Model& model : many_models()) {
    std::set<std::string> native, hf;
    int64_t names = 0;
    for (const KeyEntry& entry : entries_of(model)) {
      if (!entry.native.empty()) {
        EXPECT_TRUE(native.insert(entry.native).second) << entry.native;
      }
      for (const std::string& name : entry.hf) EXPECT_TRUE(hf.insert(name).second) << name;
      names += static_cast<int64_t>(entry.hf.size());
      if (entry.row->kind == KeyKind::kExperts) {
        EXPECT_EQ(entry.shape[0], static_cast<int64_t>(entry.hf.size())) << entry.native;
      }
    }
    EXPECT_EQ(count_names(key_table(model.model()), model), names) << model.text();
    EXPECT_EQ(count_names(key_table(model.model()), model, 20), 21) << model.text();
  }
}

TEST(KeyTable, TiedModelsMayLackTheOutput) {
  for (const Model& model : {flavor::find("llama3", "1B"), flavor::find("llama3", "8B")}) {
    const KeyEntry last = entries_of(model).back();
    const bool is_tied = std::get<Llama3>(model.dims).tied_embeddings;
    EXPECT_EQ(last.native, "lm_head.weight");
    EXPECT_EQ(last.absent, is_tied ? "model.embed_tokens.weight" : "");
    EXPECT_EQ(last.export_absent, is_tied);
  }
}

TEST(KeyTable, RefusesUnknownModels) {
  try {
    key_table("gpt\n2");
    FAIL();
  } catch (const ValueError& error) {
    EXPECT_THAT(error.what(), HasSubstr("'gpt\\n2'"));
    EXPECT_THAT(error.hint(), HasSubstr("llama3, deepseek_v3"));
  }
}

// A forged size is refused before anything is made of it.
TEST(KeyTable, RefusesAbsurdSizesAtOnce) {
  Llama3 layers = tiny_llama();
  layers.n_layers = 1'000'000'000'000;
  DeepSeekV3 experts = tiny_deepseek();
  experts.num_experts = 1'000'000'000;
  DeepSeekV3 both = tiny_deepseek();
  both.n_layers = 4096;
  both.num_experts = 65536;
  DeepSeekV3 stages = tiny_deepseek();
  stages.num_mtp_layers = 1'000'000'000'000;
  for (const Model& model : {Model{"", layers}, Model{"", experts}, Model{"", both}, Model{"", stages}}) {
    try {
      entries_of(model);
      FAIL() << model.text();
    } catch (const ValueError& error) {
      EXPECT_EQ(error.code(), ErrorCode::kTooLarge);
      EXPECT_THAT(error.what(), HasSubstr(model.text() + " has more than 1048576 tensors"));
    }
  }
}

TEST(KeyTable, RefusesSizesThatMakeNoShape) {
  Llama3 overflowing = tiny_llama();
  overflowing.n_heads = overflowing.head_dim = int64_t{1} << 40;
  Llama3 negative = tiny_llama();
  negative.dim = -8;
  DeepSeekV3 no_experts = tiny_deepseek();
  no_experts.num_experts = 0;
  for (const Model& model : {Model{"", overflowing}, Model{"", negative}, Model{"", no_experts}})
    EXPECT_THROW(entries_of(model), ValueError);
}

}  // namespace
}  // namespace milepost::adapt
