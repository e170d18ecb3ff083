#include "milepost/config/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/registry_tables.h"

namespace milepost::config {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

std::string kind_and_text(std::string_view module, std::string_view name) {
  try {
    find_entry(module, name);
  } catch (const LaunchError& error) {
    return error.kind() + ": " + error.what();
  }
  return "";
}

TEST(Registry, TakesAllSpellingsOfAModule) {
  for (std::string_view module :
       {"deepseek_v3", "torchtitan.models.deepseek_v3", "torchtitan_npu.models.deepseek_v3",
        "torchtitan.models.deepseek_v3.config_registry",
        "torchtitan_npu.models.deepseek_v3.config_registry"}) {
    EXPECT_EQ(find_entry(module, "deepseek_v3_16b").name, "deepseek_v3_16b") << module;
  }
}

TEST(Registry, NamesAnUnknownModule) {
  EXPECT_EQ(
      kind_and_text("nope", "nope"),
      "ImportError: Cannot import module 'nope' or 'nope.config_registry'. For shorthands, supported modules "
      "are: ['deepseek_v3', 'llama3']");
}

TEST(Registry, ListsEntriesForAnUnknownOne) {
  const std::string text = kind_and_text("torchtitan.models.deepseek_v3", "nope");
  EXPECT_THAT(text,
              HasSubstr("ValueError: Config function 'nope' not found in "
                        "torchtitan.models.deepseek_v3.config_registry. Available config functions: ["));
  for (const Entry& entry : deepseek_v3_entries())
    EXPECT_THAT(text, HasSubstr("'" + std::string(entry.name) + "'"));
  EXPECT_EQ(text.find("llama3_8b"), text.npos);
}

TEST(Registry, SaysThatPlannedModelsAreNotThereYet) {
  ASSERT_FALSE(planned_entries().empty());
  for (const PlannedEntry& planned : planned_entries()) {
    EXPECT_THAT(kind_and_text(planned.module, planned.name), HasSubstr("does not train")) << planned.name;
    const std::string path = "torchtitan_npu.models." + std::string(planned.module);
    EXPECT_THAT(kind_and_text(path, planned.name), HasSubstr("ImportError: Cannot import " + path));
  }
}

TEST(Registry, TakesModelsFromTheFlavors) {
  const std::pair<const char*, const char*> flavors[] = {{"deepseek_v3_debugmodel", "debugmodel"},
                                                         {"deepseek_v3_16b", "16B"},
                                                         {"deepseek_v3_236b", "236B"},
                                                         {"deepseek_v3_671b", "671B"},
                                                         {"deepseek_v3_671b_float8", "671B"}};
  for (const auto& [name, flavor] : flavors) {
    const flavor::Model model = make("deepseek_v3", name).model.architecture;
    EXPECT_EQ(model.name, flavor);
    EXPECT_EQ(model.dims, flavor::find("deepseek_v3", flavor).dims) << name;
  }
  for (const auto& [name, flavor] :
       {std::pair("llama3_8b", "8B"), {"llama3_70b", "70B"}, {"llama3_405b", "405B"}}) {
    EXPECT_EQ(make("llama3", name).model.architecture.dims, flavor::find("llama3", flavor).dims) << name;
  }
}

TEST(Registry, GivesTheMtpEntryOneLayer) {
  const Trainer trainer = make("deepseek_v3", "deepseek_v3_debugmodel_mtp");
  EXPECT_EQ(std::get<flavor::DeepSeekV3>(trainer.model.architecture.dims).num_mtp_layers, 1);
  EXPECT_EQ(trainer.model.architecture.name, "debugmodel");
}

TEST(Registry, BuildsOnlyWhatNeedsNothingSpecial) {
  const std::vector<std::string> plain = {"deepseek_v3_debugmodel",
                                          "deepseek_v3_debugmodel_mtp",
                                          "deepseek_v3_16b",
                                          "deepseek_v3_236b",
                                          "deepseek_v3_671b",
                                          "llama3_debugmodel",
                                          "llama3_debugmodel_ce_loss",
                                          "llama3_debugmodel_varlen_attn",
                                          "llama3_8b",
                                          "llama3_70b"};
  for (const Entry& entry : entries()) {
    const bool is_plain = std::find(plain.begin(), plain.end(), entry.name) != plain.end();
    EXPECT_EQ(missing_for_build(entry.make()).empty(), is_plain) << entry.name;
  }
}

TEST(Registry, SaysWhatAnEntryNeeds) {
  EXPECT_THAT(missing_for_build(make("deepseek_v3", "deepseek_v3_16b_hybridep")),
              testing::ElementsAre(HasSubstr("expert parallelism")));
  EXPECT_THAT(missing_for_build(make("llama3", "llama3_8b_mxfp8")),
              testing::ElementsAre(HasSubstr("torchao")));
  EXPECT_THAT(missing_for_build(make("llama3", "sft_debugmodel")), testing::ElementsAre(HasSubstr("chats")));
  Trainer trainer = make("llama3", "llama3_8b");
  trainer.comm.mode = "torchcomms";
  EXPECT_THAT(missing_for_build(trainer), testing::ElementsAre(HasSubstr("torchcomms")));
}

std::string override_error(OverrideImports imports) {
  try {
    check_override_targets(imports);
  } catch (const LaunchError& error) {
    return error.kind() + ": " + error.what();
  }
  return "";
}

TEST(OverrideTargets, AreTheThreeFusedOnes) {
  EXPECT_THAT(override_error({{"torchtitan.overrides.fused_mla.fused_mla", ""},
                              {"torchtitan.overrides.fused_swiglu.fused_swiglu", "{}"},
                              {"torchtitan.overrides.fused_swiglu.fused_grouped_experts", ""}}),
              IsEmpty());
  EXPECT_THAT(override_error({{"my_pkg.triton_rope.triton_rope", ""}}),
              HasSubstr("ImportError: override target 'my_pkg.triton_rope.triton_rope' is not known"));
  for (const char* target : {"fused_mla", ".fused", "a."}) {
    EXPECT_THAT(override_error({{target, ""}}), HasSubstr("ValueError")) << target;
  }
  EXPECT_THAT(override_error({{"torchtitan.overrides.fused_mla.fused_mla", R"({"x":1})"}}),
              HasSubstr("takes no arguments"));
}

}  // namespace
}  // namespace milepost::config
