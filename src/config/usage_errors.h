// The framed messages of a command line that is wrong.
#pragma once

#include <string>
#include <vector>

#include "config/option.h"
#include "milepost/config/command_line.h"

namespace milepost::config {

// A word that belongs to nothing, and the subcommand that it follows; "" before any.
struct UnknownWord {
  std::string text, subcommand;
};

UsageError missing_value(const Option& option, size_t wanted);
UsageError invalid_choice(const Option& option, const std::string& given);
UsageError bad_value(const Option& option, const std::string& why);
UsageError bad_section(const std::string& section, const std::string& why);
// `defaults` is the configuration whose flags are offered in place of the unknown ones.
UsageError unknown_words(const std::vector<UnknownWord>& words, const std::string& subcommand,
                         Trainer& defaults);

}  // namespace milepost::config
