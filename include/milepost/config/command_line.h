// The command line of milepost-train, in TorchTitan's syntax, and what a run is made of. From low to high
// precedence: defaults, registry entry, --config-file, flags.
//
//   --module llama3 --config llama3_debugmodel --training.steps 20 --checkpoint.enable
//   --config-file run.json --checkpoint.no-enable activation-checkpoint:full
//
// Flags name a field, with - or _; a bool has a second flag with `no-` before its last word and takes no
// value;
// `--flag=value` and `--flag value` mean the same; the last one counts. --module, --config and --config-file
// may stand anywhere, and so may --dry-run, which asks to stop before training, --count-tokens, which asks to
// read the data only, and --generate TEXT, which asks for the text's continuation. The subcommand
// `activation-checkpoint:POLICY` comes after all other flags, and its own follow.
//
// Nothing here prints or ends the process, and no state is kept: any thread may call it.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "milepost/base/error.h"
#include "milepost/config/registry.h"
#include "milepost/config/trainer.h"
#include "milepost/config/validate.h"

namespace milepost::config {

// A wrong flag or value, or values that may not stand together: exit status 2. what() is the message in one
// piece, box() the same in a frame with what helps: the flag's help, flags that may have been meant.
class UsageError : public ValueError {
 public:
  UsageError(std::string text, std::string box) : ValueError(std::move(text)), box_(std::move(box)) {}
  const std::string& box() const { return box_; }

 private:
  std::string box_;
};

struct Launch {
  enum class Action : uint8_t { kTrain, kDryRun, kCountTokens, kGenerate, kPrintText };
  Action action = Action::kTrain;
  std::string text;           // kPrintText: help or list, for standard output; kGenerate: the prompt
  std::string module, entry;  // the registry entry, by its short names
  Trainer trainer;            // merged and validated
  Warnings warnings;
};

// The content of a file, or an Error that says why it cannot be had.
using ReadFile = std::function<std::string(const std::string& path)>;

// Takes a command line without the program's name. Throws LaunchError for a missing or unknown module or
// entry, FormatError for a configuration file that is not right, UsageError for everything else that is
// wrong. Cost: about a millisecond.
Launch parse_command_line(std::span<const std::string> arguments, const Machine& machine,
                          const ReadFile& read_file);

}  // namespace milepost::config
