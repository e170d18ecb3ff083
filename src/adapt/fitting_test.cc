#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "adapt/test_tensors.h"

namespace milepost::adapt {
namespace {

using flavor::DeepSeekV3;
using flavor::Llama3;
using flavor::Model;
using ::testing::HasSubstr;

Fit fit_of(const TestTensors& list, Naming naming, const std::vector<Model>& candidates) {
  const TestCatalog source(list);
  return find_fitting(source.catalog, source.all, naming, candidates);
}

TestTensors tensors_of(const Model& model, Naming naming) {
  return naming == Naming::kNative ? TestTensors::native(model) : TestTensors::hugging_face(model);
}

TEST(FindFitting, FindsEachFlavorAmongAll) {
  for (const Model& model : flavor::all()) {
    for (const Naming naming : {Naming::kNative, Naming::kHuggingFace}) {
      const Fit fit = fit_of(tensors_of(model, naming), naming, flavor::all());
      ASSERT_EQ(fit.exact.size(), 1U) << model.text();
      EXPECT_EQ(fit.exact[0].text(), model.text());
      EXPECT_EQ(fit.exact[0].dims, model.dims);
    }
  }
}

TEST(FindFitting, CountsTheMtpStages) {
  Model model = flavor::find("deepseek_v3", "debugmodel");
  std::get<DeepSeekV3>(model.dims).num_mtp_layers = 2;
  for (const Naming naming : {Naming::kNative, Naming::kHuggingFace}) {
    const Fit fit = fit_of(tensors_of(model, naming), naming, flavor::all());
    ASSERT_EQ(fit.exact.size(), 1U);
    EXPECT_EQ(std::get<DeepSeekV3>(fit.exact[0].dims).num_mtp_layers, 2);
  }
}

TEST(FindFitting, MayFindTwo) {
  // Llama's head count is not in the shapes.
  Llama3 wide = tiny_llama();
  wide.n_heads = 2, wide.n_kv_heads = 1, wide.head_dim = 8;
  const Fit fit = fit_of(TestTensors::hugging_face({"", tiny_llama()}), Naming::kHuggingFace,
                         {{"narrow", tiny_llama()}, {"wide", wide}});
  EXPECT_EQ(fit.exact.size(), 2U);
}

TEST(FindFitting, NamesTheNearestAndWhereItDiffersFirst) {
  const std::vector<Model> candidates = {{"A", tiny_llama()}, {"B", tiny_deepseek()}};
  const auto closest = [&](const TestTensors& list) {
    const Fit fit = fit_of(list, Naming::kHuggingFace, candidates);
    EXPECT_TRUE(fit.exact.empty());
    return fit.closest;
  };
  TestTensors list = TestTensors::hugging_face({"", tiny_llama()});
  list.at("lm_head.weight").shape = {11, 8};
  EXPECT_EQ(closest(list), "llama3 A: lm_head.weight is [11, 8], not [10, 8]");
  EXPECT_EQ(closest(list.remove("lm_head.weight")), "llama3 A: lm_head.weight is missing");
  list.add("lm_head.weight", DType::kFloat32, {10, 8}).add("x\ny", DType::kFloat32, {1});
  EXPECT_EQ(closest(list), "llama3 A: x\\ny has no place in it");
  EXPECT_THAT(closest({}), HasSubstr("is missing"));
}

// Names that claim stages without end must not make the comparison long.
TEST(FindFitting, AbsurdStageNumbersFitNothing) {
  TestTensors list = TestTensors::native(flavor::find("deepseek_v3", "671B"));
  list.add("mtp_layers.9223372036854775807.x", DType::kFloat32, {1});
  EXPECT_TRUE(fit_of(list, Naming::kNative, flavor::all()).exact.empty());
}

}  // namespace
}  // namespace milepost::adapt
