#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "milepost/base/error.h"
#include "milepost/flavor/flavor.h"

namespace milepost::flavor {
namespace {

using ::testing::HasSubstr;

struct Case {
  Model full;
  int64_t wanted;
  Model small;
};

// Every model to sizes an eighth apart, from a million to its own.
const std::vector<Case>& cases() {
  static const std::vector<Case> kCases = [] {
    std::vector<Case> result;
    for (const Model& model : all()) {
      const auto full = static_cast<double>(num_parameters(model));
      for (double size = 1e6; size < full; size *= 1.12) {
        const int64_t wanted = std::llround(size);
        result.push_back({model, wanted, scaled_down(model, wanted)});
      }
    }
    return result;
  }();
  return kCases;
}

TEST(ScaledDown, LandsNearAnySizeAboveAMillion) {
  for (const Case& each : cases()) {
    const auto got = static_cast<double>(num_parameters(each.small));
    EXPECT_NEAR(got / static_cast<double>(each.wanted), 1, 0.1) << each.full.text() << " " << each.wanted;
  }
}

TEST(ScaledDown, MoreWantedIsNeverFewer) {
  for (size_t i = 1; i < cases().size(); ++i) {
    const Case &before = cases()[i - 1], &after = cases()[i];
    if (before.full.text() != after.full.text()) continue;
    EXPECT_GE(num_parameters(after.small), num_parameters(before.small))
        << after.full.text() << " " << after.wanted;
  }
}

TEST(ScaledDown, IsDeterministicAndHasNoNameOfItsOwn) {
  const Model full = find("deepseek_v3", "671B");
  const Model once = scaled_down(full, 4'000'000'000);
  EXPECT_EQ(once.dims, scaled_down(full, 4'000'000'000).dims);
  EXPECT_EQ(once.name, "");
}

TEST(ScaledDown, AModelThatIsSmallEnoughStaysItself) {
  for (const Model& model : all()) {
    for (const int64_t wanted : {num_parameters(model), num_parameters(model) + 1, int64_t{1} << 62}) {
      const Model same = scaled_down(model, wanted);
      EXPECT_EQ(same.dims, model.dims);
      EXPECT_EQ(same.name, model.name);
    }
  }
}

void expect_same_structure(const Llama3& full, const Llama3& small) {
  EXPECT_GE(small.n_layers, 2);
  EXPECT_EQ(small.dim % 64, 0);
  EXPECT_EQ(small.hidden_dim % 64, 0);
  EXPECT_EQ(small.vocab_size % 64, 0);
  EXPECT_GE(small.vocab_size, 2048);
  EXPECT_EQ(small.n_heads * small.head_dim, small.dim);
  EXPECT_EQ(small.head_dim % 2, 0);
  EXPECT_GE(small.n_heads, 2);
  EXPECT_EQ(small.n_heads % small.n_kv_heads, 0);
  EXPECT_EQ(small.n_heads == small.n_kv_heads, full.n_heads == full.n_kv_heads);
  EXPECT_EQ(small.tied_embeddings, full.tied_embeddings);
  EXPECT_EQ(small.rope, full.rope);
}

void expect_same_structure(const DeepSeekV3& full, const DeepSeekV3& small) {
  EXPECT_EQ(small.n_dense_layers > 0, full.n_dense_layers > 0);
  EXPECT_GE(small.n_layers - small.n_dense_layers, 2);
  for (const int64_t width :
       {small.dim, small.hidden_dim, small.moe_hidden_dim, small.vocab_size, small.q_lora_rank,
        small.kv_lora_rank, small.qk_nope_head_dim, small.v_head_dim}) {
    EXPECT_EQ(width % 64, 0);
  }
  EXPECT_EQ(small.q_lora_rank > 0, full.q_lora_rank > 0);
  EXPECT_GE(small.n_heads, 2);
  EXPECT_GE(small.num_experts, small.top_k);
  EXPECT_EQ(small.top_k, full.top_k);
  EXPECT_EQ(small.num_shared_experts, full.num_shared_experts);
  EXPECT_EQ(small.num_expert_groups, full.num_expert_groups);
  EXPECT_EQ(small.num_limited_groups, full.num_limited_groups);
  if (full.num_expert_groups > 0) {
    EXPECT_EQ(small.num_experts % small.num_expert_groups, 0);
    EXPECT_GE(small.num_experts / small.num_expert_groups, 2);
    EXPECT_GE(small.num_experts / small.num_expert_groups * small.num_limited_groups, small.top_k);
  }
  EXPECT_EQ(small.num_mtp_layers, full.num_mtp_layers);
  EXPECT_EQ(small.rope, full.rope);
}

TEST(ScaledDown, KeepsTheStructureAndNeverGrowsAnything) {
  for (const auto& [full, wanted, small] : cases()) {
    SCOPED_TRACE(full.text() + " to " + std::to_string(wanted));
    if (const auto* dims = std::get_if<Llama3>(&full.dims)) {
      expect_same_structure(*dims, std::get<Llama3>(small.dims));
    } else {
      expect_same_structure(std::get<DeepSeekV3>(full.dims), std::get<DeepSeekV3>(small.dims));
    }
    const auto before = variables(full), after = variables(small);
    for (size_t i = 0; i < before.size(); ++i) {
      EXPECT_LE(after[i].second, before[i].second) << before[i].first;
      EXPECT_EQ(after[i].second == 0, before[i].second == 0) << before[i].first;
    }
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(ScaledDown, TakesLayersAwayBeforeItNarrowsThem) {
  const Model full = find("deepseek_v3", "16B");
  const auto dims = std::get<DeepSeekV3>(scaled_down(full, 8'000'000'000).dims);
  EXPECT_LT(dims.n_layers, 27);
  EXPECT_EQ(dims.dim, 2048);
  EXPECT_EQ(dims.num_experts, 64);
  EXPECT_EQ(dims.moe_hidden_dim, 1408);
}

TEST(ScaledDown, ReleasesWithMtpLayersKeepThem) {
  Model full = find("deepseek_v3", "671B");
  std::get<DeepSeekV3>(full.dims).num_mtp_layers = 1;
  const Model small = scaled_down(full, 2'000'000'000);
  EXPECT_EQ(std::get<DeepSeekV3>(small.dims).num_mtp_layers, 1);
  EXPECT_NEAR(static_cast<double>(num_parameters(small)), 2e9, 2e8);
}

// Models with dimensions below the least widths, such as tests use: nothing grows.
TEST(ScaledDown, TinyModelsOnlyLoseLayers) {
  const Llama3 tiny{.dim = 64,
                    .n_layers = 12,
                    .n_heads = 4,
                    .n_kv_heads = 2,
                    .head_dim = 16,
                    .hidden_dim = 60,
                    .vocab_size = 96};
  const Model full{"", tiny};
  const auto dims = std::get<Llama3>(scaled_down(full, num_parameters(full) / 2).dims);
  EXPECT_LT(dims.n_layers, 12);
  EXPECT_EQ(dims.hidden_dim, 60);
  EXPECT_EQ(dims.vocab_size, 96);
}

TEST(ScaledDown, RefusesLessThanTheStructureNeeds) {
  for (const Model& model : all()) {
    try {
      scaled_down(model, 100'000);
      FAIL() << model.text();
    } catch (const ValueError& error) {
      EXPECT_THAT(error.summary(), HasSubstr(model.text() + " cannot be scaled down to 100000 parameters"));
    }
    EXPECT_THROW(scaled_down(model, -1), ValueError);
  }
}

}  // namespace
}  // namespace milepost::flavor
