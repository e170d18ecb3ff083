// Syntax and precedence of the command line: what is measured of TorchTitan's, case by case.
#include "milepost/config/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "config/test_command_lines.h"

namespace milepost::config {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(CommandLine, GivesTheRegistrysValues) {
  EXPECT_EQ(parsed({}), make("deepseek_v3", "deepseek_v3_debugmodel"));
}

TEST(CommandLine, GivesWhatAnEntryChangedInCodeGives) {
  Trainer trainer = make("deepseek_v3", "deepseek_v3_debugmodel");
  trainer.checkpoint.enable = true;
  trainer.checkpoint.folder = "steps";
  trainer.checkpoint.interval = 100;
  trainer.checkpoint.keep_latest_k = 5;
  trainer.checkpoint.async_mode = "async";
  EXPECT_EQ(parsed({"--checkpoint.enable", "--checkpoint.folder", "steps", "--checkpoint.interval", "100",
                    "--checkpoint.keep-latest-k", "5", "--checkpoint.async-mode", "async"}),
            trainer);
  trainer.checkpoint.keep_latest_k = 1;
  EXPECT_THROW(validate(trainer, {}), ValueError);
}

TEST(CommandLine, TakesModuleAndConfigAnywhereTheLastOneCounts) {
  const Launch launch = parse({"--training.steps", "3", "--config=llama3_8b", "--module", "deepseek_v3",
                               "--training.seq-len=16", "--config", "llama3_debugmodel", "--module=llama3"});
  EXPECT_EQ(launch.module, "llama3");
  EXPECT_EQ(launch.entry, "llama3_debugmodel");
  EXPECT_EQ(launch.trainer.training.steps, 3);
  EXPECT_EQ(launch.trainer.training.seq_len, 16);
}

TEST(CommandLine, TakesHyphensAndUnderscores) {
  EXPECT_EQ(parsed({"--training.local-batch-size", "3"}).training.local_batch_size, 3);
  EXPECT_EQ(parsed({"--training.local_batch_size=4"}).training.local_batch_size, 4);
  EXPECT_EQ(parsed({"--hf_assets-path", "x"}).hf_assets_path, "x");
}

TEST(CommandLine, SwitchesBools) {
  EXPECT_TRUE(parsed({"--checkpoint.enable"}).checkpoint.enable);
  EXPECT_FALSE(parsed({"--checkpoint.enable", "--checkpoint.no-enable"}).checkpoint.enable);
  EXPECT_FALSE(parsed({"--checkpoint.enable", "--checkpoint.no_enable"}).checkpoint.enable);
  EXPECT_TRUE(parsed({"--checkpoint.no-enable", "--checkpoint.enable"}).checkpoint.enable);
  EXPECT_FALSE(parsed({"--checkpoint.no-initial-load-model-only"}).checkpoint.initial_load_model_only);
  EXPECT_TRUE(
      parsed({"--checkpoint.extensions.verify-hash-manifest"}).checkpoint.extensions.verify_hash_manifest);
}

TEST(CommandLine, ReadsIntegersAsPython) {
  for (const char* text : {"2048", "2_048", " 2048 ", "+2048", "02048"}) {
    EXPECT_EQ(parsed({"--training.steps", text}).training.steps, 2048) << text;
  }
  EXPECT_EQ(parsed({"--checkpoint.load-step", "-1"}).checkpoint.load_step, -1);
  EXPECT_EQ(parsed({"--checkpoint.load_step", "5", "--checkpoint.load-step=-1"}).checkpoint.load_step, -1);
}

TEST(CommandLine, ReadsFloatsAsPython) {
  EXPECT_EQ(parsed({"--lr-scheduler.min-lr-factor", "1_0.5e-1"}).lr_scheduler.min_lr_factor, 1.05);
  EXPECT_EQ(parsed({"--training.max-norm", "1"}).training.max_norm.value, 1.0);
  EXPECT_EQ(parsed({"--training.max-norm", "-.5"}).training.max_norm.value, -0.5);
}

TEST(CommandLine, TakesNoneForOptionalValues) {
  const Trainer trainer = parsed({"--debug.seed", "3", "--lr-scheduler.decay-ratio", "None", "--debug.seed",
                                  "None", "--parallelism.context-parallel-load-balancer", "None"});
  EXPECT_EQ(trainer.debug.seed, std::nullopt);
  EXPECT_EQ(trainer.lr_scheduler.decay_ratio, std::nullopt);
  EXPECT_EQ(trainer.parallelism.context_parallel_load_balancer, std::nullopt);
  EXPECT_EQ(parsed({"--debug.seed", "3"}).debug.seed, 3);
  EXPECT_EQ(parsed({"--hf-assets-path", "None"}).hf_assets_path, "None");  // a plain text
}

TEST(CommandLine, SplitsListsAtCommasOnly) {
  const auto excluded = [](const char* text) {
    return parsed({"--checkpoint.exclude-from-loading", text}).checkpoint.exclude_from_loading;
  };
  EXPECT_THAT(excluded("optimizer,lr_scheduler,dataloader"),
              ElementsAre("optimizer", "lr_scheduler", "dataloader"));
  EXPECT_THAT(excluded("a, b"), ElementsAre("a", " b"));
  EXPECT_THAT(excluded(""), ElementsAre(""));
  EXPECT_THAT(parsed({"--checkpoint.exclude-from-loading=a,b"}).checkpoint.exclude_from_loading,
              ElementsAre("a", "b"));
}

TEST(CommandLine, ReachesEntriesOfListsByNumber) {
  const Trainer trainer = parsed({"--optimizer.param-groups.0.optimizer-kwargs.lr", "1e-4",
                                  "--optimizer.param_groups.0.optimizer_kwargs.betas", "0.8", "0.9",
                                  "--optimizer.param-groups.0.pattern", ".*norm.*"});
  ASSERT_EQ(trainer.optimizer.param_groups.size(), 1u);
  const ParamGroup& group = trainer.optimizer.param_groups[0];
  EXPECT_EQ(group.optimizer_kwargs.lr, 1e-4);
  EXPECT_EQ(group.optimizer_kwargs.betas, (FloatPair{0.8, 0.9}));
  EXPECT_EQ(group.optimizer_kwargs.weight_decay, 0.1);
  EXPECT_EQ(group.pattern, ".*norm.*");
}

TEST(CommandLine, TakesListsOfLists) {
  const auto parts =
      parsed({"--parallelism.module-fqns-per-model-part", "tok_embeddings,layers.0", "layers.1,norm"})
          .parallelism.module_fqns_per_model_part;
  ASSERT_TRUE(parts);
  EXPECT_THAT(*parts,
              ElementsAre(ElementsAre("tok_embeddings", "layers.0"), ElementsAre("layers.1", "norm")));
  EXPECT_FALSE(
      parsed({"--parallelism.module-fqns-per-model-part", "None"}).parallelism.module_fqns_per_model_part);
}

TEST(CommandLine, TakesOverrideTargetsWithArguments) {
  const auto imports = [](std::vector<std::string> words) {
    return parsed(std::move(words)).override.imports;
  };
  EXPECT_EQ(imports({"--override.imports", "a.b,c.d", "e.f"}),
            (OverrideImports{{"a.b", ""}, {"c.d", ""}, {"e.f", ""}}));
  EXPECT_EQ(imports({"--override.imports=a.b", "c.d"}), (OverrideImports{{"a.b", ""}, {"c.d", ""}}));
  EXPECT_EQ(imports({"--override.imports"}), OverrideImports{});
  EXPECT_EQ(imports({"--override.imports", R"(a.b={"x": 1, "y": "=,"})"}),
            (OverrideImports{{"a.b", R"({"x":1,"y":"=,"})"}}));
  EXPECT_EQ(imports({"--override.imports", "a.b", "activation-checkpoint:none"}),
            (OverrideImports{{"a.b", ""}}));
}

TEST(CommandLine, ChoosesThePolicyByASubcommand) {
  EXPECT_TRUE(std::holds_alternative<SelectiveAc>(parsed({}).activation_checkpoint));
  EXPECT_TRUE(std::holds_alternative<NoAc>(parsed({"activation-checkpoint:none"}).activation_checkpoint));
  const Trainer full = parsed({"--training.steps", "5", "activation-checkpoint:full",
                               "--activation-checkpoint.no-preserve-rng-state"});
  ASSERT_TRUE(std::holds_alternative<FullAc>(full.activation_checkpoint));
  EXPECT_FALSE(std::get<FullAc>(full.activation_checkpoint).preserve_rng_state);
  EXPECT_EQ(full.training.steps, 5);
  const Trainer budget = parsed({"--compile.enable", "activation_checkpoint:memory_budget",
                                 "--activation_checkpoint.memory_budget", "0.25"});
  EXPECT_EQ(std::get<MemoryBudgetAc>(budget.activation_checkpoint).memory_budget, 0.25);
  const Trainer selective = parsed({"activation-checkpoint:selective",
                                    "--activation-checkpoint.force-recompute-mm-shapes-by-fqns", "a,b"});
  EXPECT_THAT(std::get<SelectiveAc>(selective.activation_checkpoint).force_recompute_mm_shapes_by_fqns,
              ElementsAre("a", "b"));
}

TEST(CommandLine, ReachesTheLossOfTheEntry) {
  EXPECT_EQ(
      std::get<ChunkedLoss>(parsed({"--loss.loss-fn.global-vocab-size", "3"}).loss).loss_fn.global_vocab_size,
      3);
  const Launch mtp =
      parse({"--module", "deepseek_v3", "--config", "deepseek_v3_debugmodel_mtp", "--loss.mtp-scale", "0.1"});
  EXPECT_EQ(std::get<MtpLoss>(mtp.trainer.loss).mtp_scale, 0.1);
  const Launch plain = parse(
      {"--module", "llama3", "--config", "llama3_debugmodel_ce_loss", "--loss.global-vocab-size", "None"});
  EXPECT_EQ(std::get<CrossEntropyLoss>(plain.trainer.loss).global_vocab_size, std::nullopt);
}

TEST(CommandLine, TakesTheGuidesCommands) {
  const Trainer trainer =
      parsed({"--hf-assets-path", "tests/assets/deepseek_v3", "--dump-folder", "./outputs/dsv3_checkpoint",
              "--checkpoint.enable", "--checkpoint.folder", "checkpoint", "--checkpoint.interval", "100",
              "--training.steps", "200", "--checkpoint.last-save-model-only", "--checkpoint.last-save-in-hf",
              "--checkpoint.export-dtype", "bfloat16", "--override.imports",
              "torchtitan.overrides.fused_mla.fused_mla,torchtitan.overrides.fused_swiglu.fused_swiglu"});
  EXPECT_EQ(trainer.checkpoint.interval, 100);
  EXPECT_TRUE(trainer.checkpoint.export_dtype == "bfloat16");
  EXPECT_EQ(trainer.override.imports.size(), 2u);
  EXPECT_NO_THROW(parse({"--module", "deepseek_v3", "--config", "deepseek_v3_debugmodel",
                         "--parallelism.expert-parallel-degree", "2"}));
}

TEST(CommandLine, PutsFlagsOverTheFileOverTheRegistry) {
  const ReadFile file = [](const std::string& path) {
    EXPECT_EQ(path, "run.toml");
    return std::string("[training]\nsteps = 77\nseq_len = 33\n");
  };
  const std::vector<std::string> words = {
      "--module",      "llama3",   "--config",         "llama3_debugmodel",
      "--config-file", "run.toml", "--training.steps", "5"};
  const Trainer trainer = parse_command_line(words, {}, file).trainer;
  EXPECT_EQ(trainer.training.steps, 5);
  EXPECT_EQ(trainer.training.seq_len, 33);
  EXPECT_EQ(trainer.lr_scheduler.warmup_steps, 2);  // the registry's
  EXPECT_EQ(trainer.training.gc_freq, 50);          // a default
}

TEST(CommandLine, TakesTheEntryFromTheFile) {
  const ReadFile file = [](const std::string&) {
    return std::string(R"({"module": "llama3", "config": "llama3_8b", "training": {"steps": 7}})");
  };
  const std::vector<std::string> words = {"--config_file=run.json"};
  const Launch launch = parse_command_line(words, {}, file);
  EXPECT_EQ(launch.entry, "llama3_8b");
  EXPECT_EQ(launch.trainer.training.steps, 7);
  const std::vector<std::string> other = {"--config-file=run.json", "--config", "llama3_70b"};
  EXPECT_EQ(parse_command_line(other, {}, file).entry, "llama3_70b");
}

TEST(CommandLine, ValidatesWhatTheFileSays) {
  const ReadFile file = [](const std::string&) { return std::string("[checkpoint]\nkeep_latest_k = 1\n"); };
  std::vector<std::string> words = {"--module",          "llama3",        "--config",
                                    "llama3_debugmodel", "--config-file", "a.toml"};
  EXPECT_THROW(parse_command_line(words, {}, file), UsageError);
  words.insert(words.end(), {"--checkpoint.keep-latest-k", "3"});
  EXPECT_NO_THROW(parse_command_line(words, {}, file));
}

TEST(CommandLine, HandsWarningsOn) {
  EXPECT_THAT(parse({"--module", "llama3", "--config", "llama3_debugmodel"}).warnings,
              ElementsAre(HasSubstr("initial_load_model_only=True has no effect")));
}

TEST(CommandLine, ReachesEveryFlagOfTheHelp) {
  // Each heading of the help is a flag that the parser knows.
  Trainer trainer = make("deepseek_v3", "deepseek_v3_debugmodel");
  for (const Section& section : option_tree(trainer)) {
    if (is_subcommand(section)) continue;
    for (const Option& option : section.options) {
      if (!option.on_command_line()) continue;
      std::vector<std::string> words = {option.flag()};
      if (!option.is_bool()) {
        std::istringstream text(option.type->text(option.value));
        const bool quoted = option.type->text(option.value).starts_with('\'');
        for (std::string word; !quoted && text >> word;) words.push_back(word);
        if (quoted) words.push_back(option.path.ends_with("pattern") ? ".*" : "x");
      }
      if (words.size() == 1 && option.type->words == ValueType::Words::kOne) words.push_back("x");
      try {
        parsed(words);
      } catch (const UsageError& error) {
        EXPECT_THAT(error.what(), testing::Not(HasSubstr("Unrecognized"))) << option.flag();
      }
    }
  }
}

TEST(CommandLine, PrintsHelpWithTheEntrysDefaults) {
  const Launch launch = parse({"--module", "llama3", "--config", "llama3_8b", "--training.stepz", "3", "-h"});
  EXPECT_EQ(launch.action, Launch::Action::kPrintText);
  EXPECT_THAT(launch.text, HasSubstr("usage: milepost-train [-h] [OPTIONS] [{activation-checkpoint:selective,"
                                     "activation-checkpoint:full,activation-checkpoint:memory-budget,"
                                     "activation-checkpoint:none}]\n"));
  EXPECT_THAT(launch.text, HasSubstr("│ --training.seq-len INT "));
  EXPECT_THAT(launch.text, HasSubstr("│       Tokens of a sequence. (default: 8192) "));
  EXPECT_THAT(launch.text, HasSubstr("│ --checkpoint.enable, --checkpoint.no-enable "));
  EXPECT_THAT(launch.text, HasSubstr("(default: activation-checkpoint:selective)"));
  EXPECT_THAT(launch.text, HasSubstr("--debug.seed {None}|INT"));
  EXPECT_THAT(launch.text, HasSubstr("--compile.components A,B,C,..."));
  EXPECT_EQ(launch.text.find("trace-post-processor"), launch.text.npos);
  EXPECT_EQ(launch.text.find("--activation-checkpoint."), launch.text.npos);
}

TEST(CommandLine, OrdersTheHelpAsTheFieldsInBoxesOf80Columns) {
  const std::string text = parse({"--module", "llama3", "--config", "llama3_8b", "--help"}).text;
  size_t place = 0;
  for (const char* title : {"options",
                            "profiler options",
                            "metrics options",
                            "dataloader options",
                            "optimizer options",
                            "optimizer.param-groups.0 options",
                            "optimizer.param-groups.0.optimizer-kwargs options",
                            "lr-scheduler options",
                            "training options",
                            "parallelism options",
                            "checkpoint options",
                            "checkpoint.extensions options",
                            "ema-weights options",
                            "compile options",
                            "comm options",
                            "validator options",
                            "validator.dataloader options",
                            "debug options",
                            "override options",
                            "loss options",
                            "loss.loss-fn options",
                            "subcommands"}) {
    const size_t found = text.find("╭─ " + std::string(title) + " ─", place);
    ASSERT_NE(found, text.npos) << title;
    place = found;
  }
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const bool is_framed = line.starts_with("╭") || line.starts_with("│") || line.starts_with("╰");
    EXPECT_EQ(columns(line) == 80u, is_framed) << line;
  }
}

TEST(CommandLine, PrintsTheSubcommandsHelp) {
  const std::string text =
      parse({"--module", "llama3", "--config", "llama3_8b", "activation-checkpoint:memory-budget", "--help"})
          .text;
  EXPECT_THAT(text, HasSubstr("usage: milepost-train activation-checkpoint:memory-budget [-h] "
                              "[ACTIVATION-CHECKPOINT:MEMORY-BUDGET OPTIONS]"));
  EXPECT_THAT(text, HasSubstr("--activation-checkpoint.memory-budget FLOAT"));
  EXPECT_THAT(parse({"--module", "llama3", "--config", "llama3_8b", "activation-checkpoint:none", "-h"}).text,
              HasSubstr("usage: milepost-train activation-checkpoint:none [-h]\n"));
}

TEST(CommandLine, ListsConfigurations) {
  const std::string text = parse({"--list-configs"}).text;
  for (const Entry& entry : entries()) EXPECT_THAT(text, HasSubstr(std::string(entry.name)));
  EXPECT_THAT(text, HasSubstr("needs HybridEP"));
  EXPECT_THAT(text, HasSubstr("deepseek_v4_flash"));
}

TEST(CommandLine, TakesADryRunAnywhere) {
  EXPECT_EQ(parse({"--dry-run", "--module", "llama3", "--config", "llama3_8b"}).action,
            Launch::Action::kDryRun);
  EXPECT_EQ(parse({"--module", "llama3", "--config", "llama3_8b", "activation-checkpoint:none", "--dry_run"})
                .action,
            Launch::Action::kDryRun);
}

TEST(CommandLine, TakesATextToContinue) {
  const Launch launch = parse({"--module", "llama3", "--generate", "--a text", "--config", "llama3_8b",
                               "--generation.temperature", "0.5", "--generation.max_new_tokens=7"});
  EXPECT_EQ(launch.action, Launch::Action::kGenerate);
  EXPECT_EQ(launch.text, "--a text");
  EXPECT_EQ(launch.trainer.generation.temperature, 0.5);
  EXPECT_EQ(launch.trainer.generation.max_new_tokens, 7);
}

}  // namespace
}  // namespace milepost::config
