// What a wrong command line says: titles, texts and their order as measured of TorchTitan's.
#include "config/usage_errors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "config/test_command_lines.h"

namespace milepost::config {
namespace {

using testing::HasSubstr;
using testing::Not;

// The box of the error; "" when there is none.
std::string box_of(std::vector<std::string> words) {
  try {
    parse_debugmodel(std::move(words));
  } catch (const UsageError& error) {
    return error.box();
  }
  return "";
}

// Title and text of the error: "Value error: Error parsing ...".
std::string error_of(std::vector<std::string> words) {
  try {
    parse_debugmodel(std::move(words));
  } catch (const UsageError& error) {
    const std::string box = error.box(), start = "╭─ ";
    return box.substr(start.size(), box.find(" ─", start.size()) - start.size()) + ": " + error.what();
  }
  return "";
}

std::string launch_error_of(const std::vector<std::string>& words) {
  try {
    parse(words);
  } catch (const LaunchError& error) {
    return error.kind() + ": " + error.what();
  }
  return "";
}

TEST(UsageErrors, RefuseValuesOfBools) {
  EXPECT_EQ(error_of({"--checkpoint.enable", "false"}), "Unrecognized options: Unrecognized options: false");
  EXPECT_EQ(error_of({"--checkpoint.enable=True"}), "Unrecognized options: Unrecognized options: True");
  EXPECT_THAT(box_of({"--checkpoint.enable", "false"}),
              HasSubstr("Available subcommands: activation-checkpoint:"));
}

TEST(UsageErrors, NameTheSectionOfACondition) {
  EXPECT_EQ(error_of({"--checkpoint.keep-latest-k", "1"}),
            "Value error: Error parsing checkpoint: We need to maintain at least 2 checkpoint replicas, as "
            "the last "
            "one may be in the process of being saved.");
  EXPECT_THAT(error_of({"--debug.batch-invariant"}),
              HasSubstr("Value error: Error parsing Config: Batch-invariant"));
  EXPECT_THAT(error_of({"--ema-weights.decay", "1"}), HasSubstr("Error parsing ema-weights: "));
  EXPECT_THAT(error_of({"activation-checkpoint:memory-budget"}),
              HasSubstr("Error parsing Config: Memory budget"));
  EXPECT_THAT(error_of({"--checkpoint.initial-load-path", "rel/path"}), HasSubstr("absolute path"));
}

TEST(UsageErrors, ShowTheHelpOfAWrongValue) {
  EXPECT_EQ(error_of({"--training.steps", "x"}),
            "Value error: Error parsing --training.steps: invalid literal for int() with base 10: 'x'");
  const std::string box = box_of({"--training.steps", "x"});
  EXPECT_THAT(box, HasSubstr("│ Argument helptext: "));
  EXPECT_THAT(box, HasSubstr("│     --training.steps INT "));
  EXPECT_THAT(box, HasSubstr("(default: 10)"));
  EXPECT_THAT(box, HasSubstr("│ For full helptext, see milepost-train --help"));
}

TEST(UsageErrors, RefuseWhatPythonRefuses) {
  for (const char* text : {"1e3", "3.0", "", "0x10", "1__0", "_1", "1_", "--", "½"}) {
    EXPECT_NE(error_of({std::string("--training.steps=") + text}), "") << text;
  }
  for (const char* text : {"abc", "", "1e", "1_.5", "0x1p3", "nan(1)"}) {
    EXPECT_THAT(error_of({std::string("--lr-scheduler.min-lr-factor=") + text}),
                HasSubstr("could not convert string to float: '"))
        << text;
  }
  EXPECT_THAT(error_of({"--training.steps", "99999999999999999999"}), HasSubstr("beyond 64 bits"));
  EXPECT_THAT(error_of({"--debug.seed", "abc"}),
              HasSubstr("no type matching {None}|INT could be instantiated from"));
  EXPECT_THAT(error_of({"--lr-scheduler.decay-ratio", "none"}), HasSubstr("{None}|FLOAT"));
}

TEST(UsageErrors, ListTheChoices) {
  EXPECT_EQ(error_of({"--checkpoint.export-dtype", "f8"}),
            "Invalid choice: invalid choice 'f8' for argument '--checkpoint.export-dtype'. Expected one of "
            "('float16', 'bfloat16', 'float32').");
  // TorchTitan takes capitals in code, and not here.
  EXPECT_THAT(error_of({"--checkpoint.async-mode", "ASYNC"}),
              HasSubstr("Invalid choice: invalid choice 'ASYNC'"));
  EXPECT_THAT(error_of({"--training.mixed-precision-reduce", "bfloat16"}),
              HasSubstr("Expected one of ('float32',)."));
}

TEST(UsageErrors, AskForAMissingValue) {
  const std::string text = "Missing argument: Missing value for argument '--dump-folder'. Expected 1 values.";
  EXPECT_EQ(error_of({"--dump-folder"}), text);
  EXPECT_EQ(error_of({"--dump-folder", "--foo"}), text);
  EXPECT_EQ(error_of({"--dump-folder", "-x"}), text);
  EXPECT_EQ(error_of({"--dump-folder", "--training.steps", "3"}), text);
  EXPECT_THAT(error_of({"--checkpoint.export-dtype"}), HasSubstr("Missing argument"));
  EXPECT_THAT(error_of({"--optimizer.param-groups.0.optimizer-kwargs.betas", "0.8"}),
              HasSubstr("Expected 2 values."));
}

TEST(UsageErrors, OfferTheNearestFlag) {
  const std::pair<const char*, const char*> typos[] = {
      {"--training.stepz", "--training.steps INT"},
      {"--training.step", "--training.steps INT"},
      {"--Training.steps", "--training.steps INT"},
      {"--stepz", "--training.steps INT"},
      {"--steps=5", "--training.steps INT"},
      {"--checkpoint.enabled", "--checkpoint.enable, --checkpoint.no-enable"},
      {"--no-checkpoint.enable", "--checkpoint.enable, --checkpoint.no-enable"},
      {"--optimizer.lr", "--optimizer.param-groups.0.optimizer-kwargs.lr FLOAT"},
      {"--optimizer.param-groups.1.pattern", "--optimizer.param-groups.0.pattern STR"},
      {"--dataloader.datasett", "--dataloader.dataset STR"},
      {"--metrics.no-log-freq", "--metrics.log-freq INT"},
      {"--checkpoint.keep_latest", "--checkpoint.keep-latest-k INT"}};
  for (const auto& [typo, meant] : typos) {
    const std::string box = box_of({typo});
    const size_t offered = box.find("Perhaps you meant:");
    ASSERT_NE(offered, box.npos) << typo;
    // The first one offered.
    EXPECT_EQ(box.find("│     --", offered), box.find(std::string("│     ") + meant, offered)) << typo << "\n"
                                                                                               << box;
  }
  EXPECT_THAT(box_of({"--wibble.wobble", "3"}), Not(HasSubstr("Perhaps you meant")));
}

TEST(UsageErrors, CollectAllUnknownWords) {
  EXPECT_EQ(error_of({"--training.stepz", "3", "--foo.bar"}),
            "Unrecognized options: Unrecognized options: --training.stepz, 3, --foo.bar");
  EXPECT_THAT(box_of({"--training.stepz", "3", "--foo.bar"}),
              HasSubstr("Arguments similar to --training.stepz:"));
  EXPECT_EQ(error_of({"a", "b"}), "Unrecognized options: Unrecognized options: a, b");
  EXPECT_EQ(error_of({"--checkpoint.exclude-from-loading", "a", "b"}),
            "Unrecognized options: Unrecognized options: b");
  EXPECT_EQ(error_of({"activation-checkpoint:ful"}),
            "Unrecognized options: Unrecognized options: activation-checkpoint:ful");
  EXPECT_EQ(error_of({"--override.imports", "a.b", "-x"}), "Unrecognized options: Unrecognized options: -x");
  EXPECT_THAT(error_of({"--optimizer.optimizer-factory-kwargs-by-name", "a"}),
              HasSubstr("Unrecognized options"));
  EXPECT_THAT(error_of({"--model.dim", "64"}), HasSubstr("Unrecognized options"));
}

TEST(UsageErrors, SayThatAFlagIsMisplaced) {
  const std::string after = box_of({"activation-checkpoint:full", "--training.steps", "5"});
  EXPECT_THAT(after, HasSubstr("Unrecognized or misplaced options:"));
  EXPECT_THAT(after, HasSubstr("--training.steps (applied to milepost-train activation-checkpoint:full)"));
  const std::string before = box_of({"--activation-checkpoint.debug"});
  EXPECT_THAT(before, HasSubstr("--activation-checkpoint.debug (applied to milepost-train)"));
  EXPECT_THAT(before, HasSubstr("in milepost-train activation-checkpoint:full --help"));
  EXPECT_EQ(error_of({"activation-checkpoint:full", "activation-checkpoint:none"}),
            "Unrecognized options: Unrecognized options: activation-checkpoint:none");
}

TEST(UsageErrors, ComeInTheReferencesOrder) {
  // A wrong choice before unknown words, those before wrong values; values and conditions section by section.
  EXPECT_THAT(error_of({"--training.stepz", "3", "--training.dtype", "f8"}), HasSubstr("Invalid choice"));
  EXPECT_THAT(error_of({"--training.stepz", "3", "--training.seq-len", "x"}),
              HasSubstr("Unrecognized options"));
  EXPECT_THAT(error_of({"--training.steps", "x", "--training.seq-len", "y"}),
              HasSubstr("--training.seq-len"));
  EXPECT_THAT(error_of({"--checkpoint.interval", "0", "--training.steps", "x"}),
              HasSubstr("--training.steps"));
  EXPECT_THAT(error_of({"--checkpoint.interval", "0", "--debug.seed", "x"}), HasSubstr("parsing checkpoint"));
  EXPECT_THAT(error_of({"--checkpoint.interval", "0", "--compile.enable-async-tensor-parallel"}),
              HasSubstr("parsing checkpoint"));
}

TEST(UsageErrors, RefuseArgumentsOfOverridesThatAreNoObject) {
  EXPECT_EQ(error_of({"--override.imports", "a.b=[1]"}),
            "Value error: Error parsing --override.imports: override.imports kwargs for 'a.b' must be a JSON "
            "object, "
            "got '[1]'.");
  EXPECT_THAT(error_of({"--override.imports", "a.b={x"}), HasSubstr("must be a JSON object"));
}

TEST(UsageErrors, StayInTheFrameWhateverIsGiven) {
  for (const std::string& word :
       {std::string(500, 'x'), std::string("--") + std::string(5000, 'y'), std::string("a\nb\x1b[31m"),
        std::string("\xff\xfe"), std::string("ünïcode ")}) {
    const std::string box = box_of({word});
    ASSERT_NE(box, "");
    EXPECT_EQ(box.find('\x1b'), box.npos);
    std::istringstream lines(box);
    for (std::string line; std::getline(lines, line);) {
      EXPECT_LE(columns(line), 80u) << line;
      EXPECT_TRUE(line.starts_with("╭") || line.starts_with("│") || line.starts_with("╰")) << line;
    }
  }
}

TEST(LaunchErrors, AskForModuleAndConfig) {
  const std::string example = " is required. Example: --module llama3 --config llama3_debugmodel";
  EXPECT_EQ(launch_error_of({}), "ValueError: --module" + example);
  EXPECT_EQ(launch_error_of({"--config", "x"}), "ValueError: --module" + example);
  EXPECT_EQ(launch_error_of({"--module", "llama3"}), "ValueError: --config" + example);
  EXPECT_EQ(launch_error_of({"--module"}), "ValueError: --module requires a value");
  EXPECT_EQ(launch_error_of({"--module", "llama3", "--config"}), "ValueError: --config requires a value");
}

}  // namespace
}  // namespace milepost::config
