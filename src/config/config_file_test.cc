#include "milepost/config/config_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "config/old_keys.h"
#include "config/test_tables.h"
#include "milepost/base/error.h"
#include "milepost/config/registry.h"

namespace milepost::config {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Trainer with_file(const std::string& text, const char* path = "run.json",
                  const char* name = "llama3_debugmodel") {
  Trainer trainer = make(name[0] == 'l' ? "llama3" : "deepseek_v3", name);
  apply_config_file(path, parse_config_file(path, text), &trainer);
  return trainer;
}

std::string refusal(const std::string& text, const char* path = "run.json") {
  try {
    with_file(text, path);
  } catch (const FormatError& error) {
    return error.what();
  }
  return "";
}

TEST(ConfigFile, ReadsBackEveryEntryThatItWrote) {
  for (const Entry& entry : entries()) {
    const Trainer trainer = entry.make();
    const std::string text = config_file_text(trainer, entry.module, entry.name);
    const ConfigFile file = parse_config_file("a.json", text);
    EXPECT_EQ(file.module, entry.module);
    EXPECT_EQ(file.entry, entry.name);
    for (const Entry& other : entries()) {  // whatever it is put on
      Trainer read = other.make();
      apply_config_file("a.json", file, &read);
      ASSERT_EQ(read, trainer) << entry.name << " on " << other.name;
    }
  }
}

TEST(ConfigFile, ReadsBackUnusualValues) {
  Trainer trainer = make("deepseek_v3", "deepseek_v3_debugmodel");
  trainer.hf_assets_path = "päth \"with\" \\ and \n";
  trainer.training.max_norm.value = std::numeric_limits<double>::infinity();
  trainer.lr_scheduler.min_lr_factor = 0.1 + 0.2;
  trainer.debug.seed = std::numeric_limits<int64_t>::max();
  trainer.parallelism.module_fqns_per_model_part = std::vector<Strings>{{"a", "b"}, {}};
  trainer.override.imports = {{"a.b", R"({"x":[1,2]})"}, {"c.d", ""}};
  trainer.activation_checkpoint = NoAc{};
  trainer.dataloader.sources = {{"c4", std::nullopt, 0.25}, {"", "/data", 0.75}};
  trainer.optimizer.param_groups.push_back({".*norm.*", "Adam", {}});
  std::get<flavor::DeepSeekV3>(trainer.model.architecture.dims).n_layers = 3;
  trainer.model.architecture.name.clear();
  Trainer read = make("llama3", "llama3_8b");
  apply_config_file("a", parse_config_file("a", config_file_text(trainer, "m", "c")), &read);
  EXPECT_EQ(read, trainer);
}

TEST(ConfigFile, SetsOnlyWhatItHolds) {
  Trainer wanted = make("llama3", "llama3_debugmodel");
  EXPECT_EQ(with_file("{}"), wanted);
  wanted.checkpoint.async_mode = "async";
  wanted.optimizer.param_groups[0].optimizer_kwargs.lr = 1e-3;
  EXPECT_EQ(with_file(R"({"checkpoint": {"async_mode": "async"},
                          "optimizer": {"param_groups": [{"optimizer_kwargs": {"lr": 1e-3}}]}})"),
            wanted);
}

TEST(ConfigFile, ReadsToml) {
  const Trainer trainer = with_file(R"(
module = "llama3"
[checkpoint]
async_mode = "Async"
exclude_from_loading = ["optimizer", "dataloader"]
[training]
steps = 2_000
max_norm = inf
)",
                                    "run.toml");
  EXPECT_TRUE(trainer.checkpoint.async_mode == "async");
  EXPECT_THAT(trainer.checkpoint.exclude_from_loading, ElementsAre("optimizer", "dataloader"));
  EXPECT_EQ(trainer.training.steps, 2000);
  EXPECT_EQ(trainer.training.max_norm.value, std::numeric_limits<double>::infinity());
}

TEST(ConfigFile, UnderstandsOlderNames) {
  const Trainer trainer = with_file(R"(
[job]
dump_folder = "./elsewhere"
description = "a run"
[model]
name = "llama3"
flavor = "8B"
hf_assets_path = "./assets"
[optimizer]
name = "Adam"
lr = 3e-4
beta1 = 0.8
beta2 = 0.99
[training]
dataset = "c4"
seed = 7
[activation_checkpoint]
mode = "full"
[checkpoint]
enable_checkpoint = true
[validation]
dataset = "c4"
)",
                                    "old.toml");
  EXPECT_EQ(trainer.dump_folder, "./elsewhere");
  EXPECT_EQ(trainer.model.architecture.name, "8B");
  EXPECT_EQ(trainer.hf_assets_path, "./assets");
  EXPECT_EQ(trainer.optimizer.param_groups[0].optimizer_name, "Adam");
  EXPECT_EQ(trainer.optimizer.param_groups[0].optimizer_kwargs.lr, 3e-4);
  EXPECT_EQ(trainer.optimizer.param_groups[0].optimizer_kwargs.betas, (FloatPair{0.8, 0.99}));
  EXPECT_EQ(trainer.dataloader.dataset, "c4");
  EXPECT_EQ(trainer.debug.seed, 7);
  EXPECT_TRUE(std::holds_alternative<FullAc>(trainer.activation_checkpoint));
  EXPECT_TRUE(trainer.checkpoint.enable);
  EXPECT_EQ(trainer.validator.dataloader.dataset, "c4");
}

TEST(ConfigFile, MapsOlderNamesToFieldsThatExist) {
  const std::map<std::string, Json> fields = fields_of(make("llama3", "llama3_debugmodel"));
  for (const OldKey& key : old_keys()) {
    const std::string path(key.new_path);
    if (path.empty() || path.starts_with("optimizer.param_groups.0.")) continue;
    EXPECT_TRUE(fields.contains(path)) << path;
  }
}

TEST(ConfigFile, RefusesAnOldAndANewNameForOneField) {
  EXPECT_THAT(refusal(R"({"training": {"seed": 1}, "debug": {"seed": 2}})"),
              HasSubstr("'training.seed': is the old name of debug.seed, which is there, too"));
  EXPECT_THAT(refusal(R"({"optimizer": {"lr": 1, "param_groups": []}})"), HasSubstr("there is none"));
  EXPECT_THAT(refusal(R"({"optimizer": {"beta1": 1}})"), HasSubstr("both beta1 and beta2"));
  EXPECT_THAT(refusal(R"({"job": {"dump_folder": "a"}, "dump_folder": "b"})"), HasSubstr("dump_folder"));
  EXPECT_THAT(refusal(R"({"training": {"compile": true}, "compile": 3})"), HasSubstr("no section"));
}

TEST(ConfigFile, DescribesAModelOfAnySize) {
  const Trainer flavor = with_file(R"({"model": {"flavor": "70B"}})");
  EXPECT_EQ(flavor.model.architecture.dims, flavor::find("llama3", "70B").dims);
  const Trainer changed = with_file(R"({"model": {"dim": 512, "rope": {"scaling": "none", "theta": 1e4}}})");
  EXPECT_EQ(changed.model.architecture.name, "");
  const auto& dims = std::get<flavor::Llama3>(changed.model.architecture.dims);
  EXPECT_EQ(dims.dim, 512);
  EXPECT_EQ(dims.n_layers, 6);
  EXPECT_EQ(dims.rope.scaling, flavor::Rope::Scaling::kNone);
  EXPECT_EQ(dims.rope.max_seq_len, 131072);
  const Trainer other =
      with_file(R"({"model": {"name": "deepseek_v3", "flavor": "16B", "num_mtp_layers": 2}})");
  EXPECT_EQ(other.model.architecture.name, "16B");
  EXPECT_EQ(std::get<flavor::DeepSeekV3>(other.model.architecture.dims).num_mtp_layers, 2);
  const Trainer own = with_file(R"({"model": {"name": "deepseek_v3", "dim": 64, "vocab_size": 100}})");
  EXPECT_EQ(own.model.architecture.model(), "deepseek_v3");
  EXPECT_EQ(std::get<flavor::DeepSeekV3>(own.model.architecture.dims).n_layers, 0);
}

TEST(ConfigFile, KeepsTheLossWithTheModel) {
  EXPECT_EQ(
      std::get<ChunkedLoss>(with_file(R"({"model": {"vocab_size": 100}})").loss).loss_fn.global_vocab_size,
      100);
  EXPECT_EQ(
      std::get<ChunkedLoss>(with_file(R"({"model": {"vocab_size": 100}, "loss": {"num_chunks": 2}})").loss)
          .loss_fn.global_vocab_size,
      2048);
}

TEST(ConfigFile, NamesAnUnknownKeyAndTheNearest) {
  EXPECT_EQ(refusal(R"({"checkpoint": {"async_mod": "async"}})"),
            "run.json: entry 'checkpoint.async_mod': no such key; did you mean 'async_mode'?");
  EXPECT_EQ(refusal(R"({"checkpont": {}})"),
            "run.json: entry 'checkpont': no such key; did you mean 'checkpoint'?");
  EXPECT_THAT(refusal(R"({"model": {"dims": 3}})"), HasSubstr("did you mean 'dim'?"));
  EXPECT_THAT(refusal(R"({"parallelism": {"expert_tensor_parallel_degree": 1}})"), HasSubstr("no such key"));
  EXPECT_THAT(refusal(R"({"loss": {"mtp_scale": 1}})"), HasSubstr("'loss.mtp_scale': no such key"));
}

TEST(ConfigFile, NamesAValueOfAnotherType) {
  const std::pair<const char*, const char*> wrong[] = {
      {R"({"training": {"steps": "10"}})",
       "'training.steps': want an integer of at most 64 bits, found \"10\""},
      {R"({"training": {"steps": 1.5}})", "want an integer"},
      {R"({"training": {"steps": 18446744073709551615}})", "want an integer"},
      {R"({"training": {"steps": null}})", "want an integer"},
      {R"({"training": 3})", "'training': want a section (an object), found 3"},
      {R"({"training": {"dtype": "float16"}})", "want one of 'bfloat16', 'float32', found"},
      {R"({"checkpoint": {"enable": 1}})", "'checkpoint.enable': want true or false, found 1"},
      {R"({"checkpoint": {"exclude_from_loading": "a"}})", "want a list of texts"},
      {R"({"checkpoint": {"exclude_from_loading": [1]}})", "want a list of texts"},
      {R"({"debug": {"seed": "x"}})", "or null"},
      {R"({"lr_scheduler": {"min_lr_factor": true}})", "want a number"},
      {R"({"optimizer": {"param_groups": {}}})", "want a list"},
      {R"({"optimizer": {"param_groups": [{"optimizer_kwargs": {"betas": [1]}}]}})",
       "'optimizer.param_groups.0.optimizer_kwargs.betas': want a list of two numbers"},
      {R"({"optimizer": {"optimizer_factory_kwargs_by_name": {"a": 1}}})", "in code only"},
      {R"({"profiler": {"trace_post_processor": "f"}})", "in code only"},
      {R"({"activation_checkpoint": {"policy": "half"}})", "want one of 'selective', 'full'"},
      {R"({"model": {"name": "gpt"}})", "unknown model"},
      {R"({"model": {"flavor": "9B"}})", "has no flavor"},
      {R"({"model": {"rope": {"scaling": "ntk"}}})",
       "'model.rope.scaling': want one of 'none', 'llama', 'yarn'"},
      {R"({"override": {"imports": [["a"]]}})", "want a list of targets"},
      {R"({"module": 3})", "'module': want a text"},
      {R"([])", "want an object of sections"},
  };
  for (const auto& [text, words] : wrong) EXPECT_THAT(refusal(text), HasSubstr(words)) << text;
}

TEST(ConfigFile, RefusesWhatIsNoJson) {
  EXPECT_THAT(refusal("{"), HasSubstr("run.json, at byte 2: this is not JSON"));
  EXPECT_THAT(refusal(""), HasSubstr("this is not JSON"));
  EXPECT_THAT(refusal("[checkpoint]\n"), HasSubstr("a TOML file needs a name that ends in .toml"));
  EXPECT_THAT(refusal(R"({"a": {"b": 1, "b": 2}})"), HasSubstr("'b': the key occurs twice"));
  EXPECT_THAT(refusal("{\"a\": \"\xff\"}"), HasSubstr("this is not JSON"));
  EXPECT_THAT(refusal(std::string(100000, '[')), HasSubstr("nested more than"));
  EXPECT_THAT(refusal(R"({"training": {"max_norm": 1e999}})"), HasSubstr("beyond what a double can hold"));
}

TEST(ConfigFile, RefusesWhatIsNoToml) {
  EXPECT_THAT(refusal("[checkpoint\n", "run.toml"), HasSubstr("run.toml: this is not TOML: line 1, column"));
  EXPECT_THAT(refusal("a = 1\na = 2\n", "run.toml"), HasSubstr("this is not TOML: line 2"));
  EXPECT_THAT(refusal("[debug]\nseed = 1979-05-27\n", "run.toml"),
              HasSubstr("'debug.seed': no field is a date"));
  EXPECT_NE(refusal("a = " + std::string(100000, '['), "run.toml"), "");
  EXPECT_NE(refusal("\xff = 1", "run.toml"), "");
  EXPECT_THAT(refusal("[: \"a\",\n]", "run.toml"), HasSubstr("run.toml: this is not TOML"));
}

TEST(Reference, NamesEveryFieldOnce) {
  const std::string text = configuration_reference();
  for (const auto& row : read_table("fields.tsv")) {
    if (row[0].ends_with(".policy") || row[0].ends_with(".type") || row[0] == "optimizer.param_groups")
      continue;
    EXPECT_THAT(text, HasSubstr("| `" + row[0].substr(row[0].rfind('.') + 1) + "`")) << row[0];
  }
}

}  // namespace
}  // namespace milepost::config
