// The text of --help, and of an option in an error.
#pragma once

#include <string>

#include "config/box.h"
#include "config/option.h"

namespace milepost::config {

inline constexpr std::string_view kProgram = "milepost-train";

// "--training.steps INT", "--a.b, --a.no-b".
std::string option_heading(const Option& option);
// The help text and "(default: 10)".
std::string option_help(const Option& option);
// Both into a box, the second further in.
void add_option(const Option& option, size_t indent, size_t help_indent, Box* box);

// Everything that can stand before the subcommand, with the trainer's values as defaults.
std::string help_text(Trainer& trainer);
// What can stand behind `activation-checkpoint:NAME`, for the policy that the trainer has.
std::string subcommand_help_text(Trainer& trainer);
// What the program is, for a command line without a module and a file.
std::string general_help_text();
// Modules, entries and what each needs.
std::string list_configs_text();

// "activation-checkpoint:selective" and so on.
std::vector<std::string> subcommand_names();

}  // namespace milepost::config
