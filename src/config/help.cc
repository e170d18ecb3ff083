#include "config/help.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "milepost/config/registry.h"

namespace milepost::config {
namespace {

constexpr size_t kHelpIndent = 6;

void add_own_flags(Box* box) {
  const auto add = [&](std::string_view heading, std::string_view help) {
    box->add(heading);
    box->add(help, kHelpIndent);
  };
  add("-h, --help", "show this help message and exit");
  add("--module STR", "Model: llama3, deepseek_v3; also as torchtitan.models.X.");
  add("--config STR", "Entry of its registry, which gives the defaults.");
  add("--config-file FILE",
      "JSON or TOML on top of the entry: values that the command line can still change.");
  add("--dry-run",
      "Check the configuration, print and save it where that is asked for, and exit without training.");
  add("--count-tokens", "Read the data that training would read, log tokens and rate, and exit.");
  add("--generate TEXT",
      "Continue the text with the weights that checkpoint.initial_load_path or the own folder holds, print "
      "it, and exit.");
  add("--list-configs", "Print modules, entries and what each needs, and exit.");
}

bool has_flags(const Section& section) {
  for (const Option& option : section.options) {
    if (option.on_command_line()) return true;
  }
  return false;
}

std::string section_box(const Section& section) {
  const std::string name = with_hyphens(section.path);
  Box box(name.empty() ? "options" : name + " options");
  if (name.empty()) add_own_flags(&box);
  if (!name.empty() && !section.help.empty()) {
    box.add(section.help);
    box.add_rule();
  }
  for (const Option& option : section.options) {
    if (option.on_command_line()) add_option(option, 0, kHelpIndent, &box);
  }
  return box.text(/*full_width=*/true);
}

std::string policy_name(const Trainer& trainer) {
  return std::string(kAcPolicies[trainer.activation_checkpoint.index()]);
}

}  // namespace

std::vector<std::string> subcommand_names() {
  std::vector<std::string> names;
  for (std::string_view policy : kAcPolicies)
    names.push_back(fmt::format("activation-checkpoint:{}", policy));
  return names;
}

std::string option_heading(const Option& option) {
  if (option.is_bool()) return fmt::format("{}, {}", option.flag(), option.no_flag());
  return fmt::format("{} {}", option.flag(), option.type->metavar);
}

std::string option_help(const Option& option) {
  const std::string shown = fmt::format("(default: {})", option.type->text(option.value));
  return option.note.help.empty() ? shown : fmt::format("{} {}", option.note.help, shown);
}

void add_option(const Option& option, size_t indent, size_t help_indent, Box* box) {
  box->add(option_heading(option), indent);
  box->add(option_help(option), help_indent);
}

std::string help_text(Trainer& trainer) {
  std::string text =
      fmt::format("usage: {} [-h] [OPTIONS] [{{{}}}]\n\n", kProgram, fmt::join(subcommand_names(), ","));
  text += "Trains a model. Options may be written with - or _; the last one counts.\n\n";
  for (const Section& section : option_tree(trainer)) {
    if (!is_subcommand(section) && has_flags(section)) text += section_box(section);
  }
  Box box("subcommands");
  box.add(fmt::format("(default: activation-checkpoint:{})", policy_name(trainer)));
  for (const std::string& name : subcommand_names()) box.add("• " + name, 2);
  return text + box.text(/*full_width=*/true);
}

std::string subcommand_help_text(Trainer& trainer) {
  const std::string name = "activation-checkpoint:" + policy_name(trainer);
  std::string upper = name;
  for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  Box options("options");
  options.add("-h, --help");
  options.add("show this help message and exit", kHelpIndent);
  std::string flags, boxes = options.text(/*full_width=*/true);
  for (const Section& section : option_tree(trainer)) {
    if (!is_subcommand(section) || !has_flags(section)) continue;
    flags = fmt::format(" [{} OPTIONS]", upper);
    boxes += section_box(section);
  }
  return fmt::format("usage: {} {} [-h]{}\n\n{}", kProgram, name, flags, boxes);
}

std::string general_help_text() {
  return fmt::format(
      "usage: {0} --module MODULE --config CONFIG [OPTIONS]\n"
      "       {0} --config-file FILE [OPTIONS]\n"
      "       {0} --list-configs\n\n"
      "Trains a model. MODULE and CONFIG name an entry of a registry, which gives every option a value; a "
      "file and\n"
      "then the command line change them. For all options and their values in an entry:\n\n"
      "  {0} --module llama3 --config llama3_debugmodel --help\n",
      kProgram);
}

std::string list_configs_text() {
  std::string text;
  std::string_view module;
  for (const Entry& entry : entries()) {
    if (entry.module != module) text += fmt::format("{}{}\n", module.empty() ? "" : "\n", entry.module);
    module = entry.module;
    text += fmt::format("  {:<45} {}\n", entry.name, entry.summary);
    for (const std::string& missing : missing_for_build(entry.make())) {
      text += fmt::format("  {:<45} needs {}\n", "", missing);
    }
  }
  for (const PlannedEntry& planned : planned_entries()) {
    if (planned.module != module) text += fmt::format("\n{} (not in this version)\n", planned.module);
    module = planned.module;
    text += fmt::format("  {}\n", planned.name);
  }
  return text;
}

}  // namespace milepost::config
