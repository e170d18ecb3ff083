// docs/configuration.md, from the declarations.
#include <fmt/format.h>

#include "config/flavor_fields.h"
#include "config/json.h"
#include "config/old_keys.h"
#include "config/option.h"
#include "milepost/config/config_file.h"
#include "milepost/config/registry.h"

namespace milepost::config {
namespace {

constexpr std::string_view kIntroduction =
    R"(# Configuration

<!-- Made by `milepost-train --configuration-reference`; a test compares. Edit the declarations in
include/milepost/config/ instead. -->

Every field of a training run. A value comes, from low to high precedence, from the defaults below, the registry
entry (`--module`, `--config`; `milepost-train --list-configs`), a file (`--config-file`) and the command line.
`milepost-train --module M --config C --help` shows the values of an entry.

**Flags.** A field `section.field_name` has the flag `--section.field-name`; `-` and `_` mean the same, and so do
`--flag value` and `--flag=value`; the last one counts. A bool takes no value: `--checkpoint.enable`,
`--checkpoint.no-enable`. `None` is a value where the type says so. A list `A,B,C,...` is one word, with commas and
without spaces. Entries of lists have numbers: `--optimizer.param-groups.0.optimizer-kwargs.lr 1e-4`. The policy of
activation checkpointing is a subcommand that comes last, before its own flags:
`activation-checkpoint:full --activation-checkpoint.no-preserve-rng-state`. A wrong line ends with exit status 2.

**Files.** JSON, or TOML when the name ends in `.toml`: sections and fields under their names, as many as are to be
set, `null` for None. `module` and `config` at the top name the entry, and may then be left out of the command line.
`--debug.save-config-file F` writes all fields into `F` of the dump folder; `--config-file` reads it back to the
same configuration. An unknown key, a key twice and a value of another type are errors (exit status 1) that name the
key.

**Without training.** `--dry-run` checks the configuration, prints and saves it where that is asked for, and exits
with 0. `--count-tokens` reads the text that training would read, with this rank's share of it, and logs tokens and
their rate. `--generate TEXT` prints the text and its continuation by the model: the weights of
`checkpoint.initial_load_path` (DCP or Hugging Face), else the newest ones of the run's own folder, else those beside
the tokenizer. `--comm.mode local_tensor` (COMM_MODE of the launcher) checks and exits with 0 as well; `fake_backend` stands
for NGPU ranks in one process.

**Not as in TorchTitan.** Conditions on CUDA graphs do not apply, since Milepost captures none. Integers have 64 bits.
`betas` takes exactly two numbers. A wrong number of validation steps ends with 2, like every other wrong value. What
an entry, an override or comm.mode needs beyond this version is refused before a run starts (exit status 1), never
while it is shown or saved.

Fields marked (M) are Milepost's own; the others are TorchTitan 0.3.0's, with its names and defaults. Fields marked
(F) have no flag: registry entries and files set them.
)";

std::string table_cell(std::string_view text) {
  std::string cell;
  for (char c : text) {
    if (c == '|') cell += '\\';
    cell += c;
  }
  return cell;
}

std::string row(const Option& option) {
  const std::string field = option.path.substr(option.path.rfind('.') + 1);
  const std::string type = option.is_bool() ? "bool" : option.type->metavar;
  std::string marks;
  if (option.note.marks & kOurs) marks += " (M)";
  if (option.note.marks & kFileOnly) marks += " (F)";
  return fmt::format("| `{}`{} | `{}` | `{}` | {} |\n", field, marks, table_cell(type),
                     table_cell(option.type->text(option.value)), table_cell(option.note.help));
}

std::string section_text(const Section& section, const std::string& title) {
  if (section.options.empty() && section.help.empty()) return "";
  std::string text = fmt::format("\n## {}\n", title);
  if (!section.help.empty()) text += fmt::format("\n{}\n", section.help);
  if (section.options.empty()) return text;
  text += "\n| field | type | default | meaning |\n|---|---|---|---|\n";
  for (const Option& option : section.options) text += row(option);
  return text;
}

// The sections below `path` of a trainer in which one alternative is chosen.
std::string alternative_text(Trainer trainer, std::string_view path, std::string_view name) {
  std::string text;
  for (const Section& section : option_tree(trainer)) {
    if (section.path != path && !section.path.starts_with(fmt::format("{}.", path))) continue;
    text += section_text(section, fmt::format("{} ({})", section.path, name));
  }
  return text;
}

std::string activation_text() {
  const ActivationCheckpoint policies[] = {SelectiveAc{}, FullAc{}, MemoryBudgetAc{}, NoAc{}};
  std::string text;
  for (const ActivationCheckpoint& policy : policies) {
    Trainer trainer;
    trainer.activation_checkpoint = policy;
    text += alternative_text(trainer, "activation_checkpoint",
                             fmt::format("policy {}", kAcPolicies[policy.index()]));
  }
  return text;
}

std::string loss_text() {
  const Loss losses[] = {ChunkedLoss{}, CrossEntropyLoss{}, MtpLoss{}};
  std::string text;
  for (const Loss& loss : losses) {
    Trainer trainer;
    trainer.loss = loss;
    text += alternative_text(trainer, "loss", fmt::format("type {}", kLosses[loss.index()]));
  }
  return text;
}

// Dimensions stand under their names beside the model's options; values are those of the smallest flavor.
std::string dimensions_text() {
  std::string text =
      "\n## model: dimensions\n\nOnly in files. `name` is the model and `flavor` one of its sizes, whose "
      "dimensions are "
      "then taken; those\ngiven beside it change them. An empty `flavor` stands for a model of any size. "
      "What "
      "include/milepost/flavor/flavor.h\nsays of each holds. Values of the debug models:\n";
  for (std::string_view name : flavor::model_names()) {
    Trainer trainer;
    trainer.model.architecture = flavor::find(name, "debugmodel");
    text += fmt::format("\n```json\n{}\n```\n", to_json(trainer)["model"].dump(2));
  }
  return text;
}

std::string old_keys_text() {
  std::string text =
      "\n## Names of older files\n\nOf the time when TorchTitan was configured by TOML. `optimizer.beta1` "
      "and `beta2` are "
      "understood, too.\n\n| in the file | now |\n|---|---|\n";
  for (const OldKey& key : old_keys()) {
    text += fmt::format("| `{}` | {} |\n", key.old_path,
                        key.new_path.empty() ? "nothing" : fmt::format("`{}`", key.new_path));
  }
  return text;
}

}  // namespace

std::string configuration_reference() {
  Trainer trainer;
  trainer.optimizer.param_groups.resize(1);
  trainer.dataloader.sources.resize(1);
  trainer.validator.dataloader.sources.clear();
  std::string text(kIntroduction);
  for (const Section& section : option_tree(trainer)) {
    if (section.path == "activation_checkpoint") {
      text += activation_text();
    } else if (section.path == "loss") {
      text += loss_text();
    } else if (!section.path.starts_with("loss.")) {
      text += section_text(section, section.path.empty() ? "At the top" : section.path);
    }
    if (section.path == "model") text += dimensions_text();
  }
  return text + old_keys_text();
}

}  // namespace milepost::config
