// Command: one subcommand of the tool. main.cc holds the table of all of them.
#pragma once

#include <memory>

#include "flags.h"
#include "terminal.h"

namespace milepost::cli {

// What a run ends with; errors thrown from run() become one of these by the table in main.cc.
enum ExitStatus : int {
  kDone = 0,
  kFoundWanting = 1,  // a check was made and its answer is no
  kUsage = 2,         // the command line is wrong
  kBadInput = 3,      // what lies at a path is not what it should be
  kSystem = 4         // the system failed
};

class Command {
 public:
  virtual ~Command() = default;

  virtual const char* name() const = 0;         // "inspect", "manifest write"
  virtual const char* summary() const = 0;      // one line, for the list of commands
  virtual const char* description() const = 0;  // for its own help, above the flags
  virtual const char* examples() const = 0;     // command lines, one a line, with "# comment" lines between
  virtual void declare(Flags& flags) = 0;       // `--json` and `--help` are main's
  virtual int run(const Terminal& terminal) = 0;
};

std::unique_ptr<Command> inspect_command();
std::unique_ptr<Command> verify_command();
std::unique_ptr<Command> diff_command();
std::unique_ptr<Command> convert_command();
std::unique_ptr<Command> reshard_command();
std::unique_ptr<Command> import_command();
std::unique_ptr<Command> export_command();
std::unique_ptr<Command> keymap_command();
std::unique_ptr<Command> synth_command();
std::unique_ptr<Command> tokenize_command();
std::unique_ptr<Command> pin_command();
std::unique_ptr<Command> manifest_write_command();
std::unique_ptr<Command> manifest_verify_command();

}  // namespace milepost::cli
