#include "milepost/flavor/flavor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>

#include "milepost/base/error.h"

namespace milepost::flavor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <typename Call>
std::string refusal_of(Call call) {
  try {
    call();
  } catch (const ValueError& error) {
    return error.summary();
  }
  return "accepted";
}

// TorchTitan 0.3.0's own counts (spec cli-and-configs, sections 5.1 and 6).
TEST(Flavor, CountsTheParametersThatTorchTitanCounts) {
  const std::map<std::string, int64_t> expected = {
      {"llama3 debugmodel", 6'163'712},       {"llama3 1B", 1'235'814'400},
      {"llama3 3B", 3'212'749'824},           {"llama3 8B", 8'030'261'248},
      {"llama3 70B", 70'553'706'496},         {"llama3 405B", 405'853'388'800},
      {"deepseek_v3 debugmodel", 33'014'016}, {"deepseek_v3 16B", 15'706'484'224},
      {"deepseek_v3 236B", 235'741'434'880},  {"deepseek_v3 671B", 671'026'404'352},
  };
  std::map<std::string, int64_t> counted;
  for (const Model& model : all()) counted[model.text()] = num_parameters(model);
  EXPECT_EQ(counted, expected);
}

TEST(Flavor, CountsAnMtpLayerAsALayerWithThreeNormsAndAProjection) {
  Model model = find("deepseek_v3", "debugmodel");
  auto& dims = std::get<DeepSeekV3>(model.dims);
  const int64_t before = num_parameters(model);
  ++dims.n_layers;
  const int64_t layer = num_parameters(model) - before;
  --dims.n_layers;
  dims.num_mtp_layers = 2;
  EXPECT_EQ(num_parameters(model) - before, 2 * (layer + 3 * 256 + 2 * 256 * 256));
}

TEST(Flavor, RefusesToCountMoreThanSixtyFourBits) {
  Model model = find("llama3", "8B");
  std::get<Llama3>(model.dims).dim = std::numeric_limits<int64_t>::max() / 2;
  EXPECT_THAT(refusal_of([&] { num_parameters(model); }), HasSubstr("64 bits"));
  std::get<Llama3>(model.dims).dim = -1;
  EXPECT_THAT(refusal_of([&] { num_parameters(model); }), HasSubstr("negative"));
}

TEST(Flavor, ListsModelsAndFlavorsFromSmallToLarge) {
  EXPECT_THAT(std::vector(model_names().begin(), model_names().end()), ElementsAre("llama3", "deepseek_v3"));
  EXPECT_THAT(flavor_names("llama3"), ElementsAre("debugmodel", "1B", "3B", "8B", "70B", "405B"));
  EXPECT_THAT(flavor_names("deepseek_v3"), ElementsAre("debugmodel", "16B", "236B", "671B"));
}

TEST(Flavor, EveryLlamaFlavorHasHeadsThatFillItsWidth) {
  for (const Model& model : all()) {
    if (const auto* dims = std::get_if<Llama3>(&model.dims)) {
      EXPECT_EQ(dims->n_heads * dims->head_dim, dims->dim) << model.text();
    }
  }
}

TEST(Flavor, NamesWhatThereIsWhenANameIsUnknown) {
  EXPECT_EQ(refusal_of([] { find("llama4", "8B"); }),
            "unknown model 'llama4'; known are llama3, deepseek_v3");
  EXPECT_EQ(refusal_of([] { flavor_names("\n"); }), "unknown model '\\n'; known are llama3, deepseek_v3");
  EXPECT_EQ(refusal_of([] { find("deepseek_v3", "8B"); }),
            "deepseek_v3 has no flavor '8B'; it has debugmodel, 16B, 236B, 671B");
}

TEST(Flavor, FindsTheEntryOfEveryEntry) {
  for (const Model& model : all()) {
    const auto found = find_equal({"", model.dims});
    ASSERT_TRUE(found) << model.text();
    EXPECT_EQ(found->text(), model.text());
    EXPECT_EQ(found->dims, model.dims);
    EXPECT_EQ(find(model.model(), model.name).dims, model.dims);
  }
}

TEST(Flavor, TellsEntriesApartByDimensionsOnly) {
  Model model = find("deepseek_v3", "671B");
  auto& dims = std::get<DeepSeekV3>(model.dims);
  dims.num_mtp_layers = 1;
  dims.norm_eps = 1e-6;
  dims.rope.max_seq_len = 163840;
  ASSERT_TRUE(find_equal(model));
  EXPECT_EQ(find_equal(model)->name, "671B");
  dims.score_func = DeepSeekV3::Score::kSoftmax;
  EXPECT_FALSE(find_equal(model));
}

TEST(Flavor, TextNamesTheFlavorOrTheLayers) {
  EXPECT_EQ(find("deepseek_v3", "671B").text(), "deepseek_v3 671B");
  EXPECT_EQ((Model{"", Llama3{.n_layers = 3}}).text(), "a llama3 of 3 layers");
  EXPECT_EQ((Model{"", DeepSeekV3{.n_layers = 1}}).text(), "a deepseek_v3 of 1 layer");
}

TEST(Flavor, VariablesHoldFieldsAndWhatFollowsFromThem) {
  const auto llama = variables(find("llama3", "1B"));
  const std::map<std::string_view, int64_t> llama_map(llama.begin(), llama.end());
  EXPECT_EQ(llama_map.size(), llama.size());
  EXPECT_EQ(llama_map.at("tied_embeddings"), 1);
  EXPECT_EQ(llama_map.at("n_kv_heads"), 8);
  const auto deepseek = variables(find("deepseek_v3", "236B"));
  const std::map<std::string_view, int64_t> deepseek_map(deepseek.begin(), deepseek.end());
  EXPECT_EQ(deepseek_map.size(), deepseek.size());
  EXPECT_EQ(deepseek_map.at("qk_head_dim"), 192);
  EXPECT_EQ(deepseek_map.at("shared_hidden_dim"), 3072);
  EXPECT_EQ(deepseek_map.at("softmax"), 1);
}

}  // namespace
}  // namespace milepost::flavor
