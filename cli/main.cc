// milepost: looks into checkpoints, checks, compares and converts them. This file: the table of commands, and
// how a run ends.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <map>
#include <new>
#include <system_error>

#include "command.h"
#include "interrupt.h"
#include "json.h"
#include "milepost/base/error.h"
#include "milepost/storage/faulty.h"

namespace milepost::cli {
namespace {

constexpr const char* kVersion = MILEPOST_VERSION;
constexpr size_t kHelpColumns = 88;
constexpr const char* kDescription =
    "Looks into model checkpoints, checks, compares, reshards and converts them: PyTorch DCP folders,\n"
    "safetensors (Hugging Face) and torch.save files. No torch is needed.";

std::vector<std::unique_ptr<Command>> all_commands() {
  std::vector<std::unique_ptr<Command>> commands;
  commands.push_back(inspect_command());
  commands.push_back(verify_command());
  commands.push_back(diff_command());
  commands.push_back(convert_command());
  commands.push_back(reshard_command());
  commands.push_back(import_command());
  commands.push_back(export_command());
  commands.push_back(keymap_command());
  commands.push_back(synth_command());
  commands.push_back(tokenize_command());
  commands.push_back(pin_command());
  commands.push_back(manifest_write_command());
  commands.push_back(manifest_verify_command());
  return commands;
}

// Which exit status an error ends with. `refused` says that the command line asked for something that cannot
// be done.
int status_of(const Error& error) {
  switch (error.code()) {
    case ErrorCode::kBadArgument:
      return error.path().empty() ? kUsage : kBadInput;  // an argument is wrong, or what it names
    case ErrorCode::kExists:
      return kUsage;
    case ErrorCode::kIo:
    case ErrorCode::kNoSpace:
    case ErrorCode::kLocked:
      return kSystem;
    default:
      return kBadInput;
  }
}

// The flag is the tool's word; the library says only what it means.
std::string message_of(const Error& error) {
  const bool can_overwrite =
      error.code() == ErrorCode::kExists && error.hint().find("overwrite") != std::string::npos;
  const bool can_resume = error.hint().find("resume to continue") != std::string::npos;
  return fmt::format("{}{}{}", error.what(), can_overwrite ? " (--overwrite)" : "",
                     can_resume ? " (--resume)" : "");
}

std::string stopped_text(const Error& error) {
  if (error.hint().find("resume to continue") == std::string::npos)
    return "stopped by a signal; nothing was changed";
  return "stopped by a signal; the destination is as it was; what was written is kept: continue it with "
         "--resume, or start again without, which removes it";
}

int report(const Terminal& terminal, const std::string& message, int status, const Json& json = {}) {
  fmt::print(stderr, "{} {}\n", terminal.paint_error(Colour::kRed, "milepost: error:"), message);
  if (terminal.json()) {
    terminal.write(
        json_text({{"error", json.is_null() ? Json{{"code", "system"}, {"message", message}} : json}}));
  }
  return status;
}

int run(Command& command, const Terminal& terminal) {
  try {
    const int status = command.run(terminal);
    if (!terminal.flush()) return report(Terminal(false), "standard output could not be written", kSystem);
    return status;
  } catch (const Error& error) {
    const int signal = Interrupt::signal_received();
    if (signal != 0) return report(terminal, stopped_text(error), 128 + signal, json_error(error));
    return report(terminal, message_of(error), status_of(error), json_error(error));
  } catch (const std::bad_alloc&) {
    return report(terminal, "out of memory; a smaller --max-memory may help", kSystem);
  } catch (const PowerCut&) {
    return report(terminal, "a power cut was rehearsed here", kSystem);
  } catch (const std::exception& error) {
    return report(terminal, error.what(), kSystem);
  }
}

// The parser of one command below `group`, its flags declared.
CLI::App* declare(Command& command, CLI::App& group, const std::string& word, bool* json) {
  CLI::App* app = group.add_subcommand(word, command.summary());
  Flags flags(*app);
  command.declare(flags);
  app->add_flag("--json", *json, "print one JSON document instead of text");
  app->footer(fmt::format("Examples:\n{}", command.examples()));
  return app;
}

// The innermost parser that was called: its help is what the user wants.
CLI::App* called(CLI::App& root) {
  CLI::App* app = &root;
  while (!app->get_subcommands().empty()) app = app->get_subcommands().back();
  return app;
}

std::string full_name(const CLI::App* app) {
  return app->get_parent() == nullptr ? "milepost" : full_name(app->get_parent()) + " " + app->get_name();
}

int main(int argc, char** argv) {
  CLI::App root(kDescription, "milepost");
  root.set_version_flag("--version", fmt::format("milepost {}", kVersion));
  root.require_subcommand(1);
  root.footer("Run `milepost COMMAND --help` for a command's flags and an example.");
  bool json = false;
  std::vector<std::unique_ptr<Command>> commands = all_commands();
  std::map<std::string, CLI::App*> groups;
  std::map<const CLI::App*, Command*> by_app;
  for (const std::unique_ptr<Command>& command : commands) {
    const std::string name = command->name();
    const size_t space = name.find(' ');
    CLI::App* group = &root;
    if (space != std::string::npos) {
      CLI::App*& known = groups[name.substr(0, space)];
      if (known == nullptr) {
        known = root.add_subcommand(name.substr(0, space),
                                    "Write or check the SHA-256 of every file of a checkpoint");
        known->require_subcommand(1);
      }
      group = known;
    }
    by_app[declare(*command, *group, space == std::string::npos ? name : name.substr(space + 1), &json)] =
        command.get();
  }

  try {
    root.parse(argc, argv);
  } catch (const CLI::CallForVersion& version) {
    fmt::print("{}\n", version.what());
    return kDone;
  } catch (const CLI::CallForHelp&) {
    CLI::App* app = called(root);
    const auto command = by_app.find(app);
    if (command != by_app.end()) app->description(wrapped(command->second->description(), kHelpColumns));
    fmt::print("{}", app->help(app->get_parent() == nullptr ? "" : full_name(app->get_parent())));
    return kDone;
  } catch (const CLI::ParseError& error) {
    const Terminal terminal(json);
    const std::string message = fmt::format("{} (see `{} --help`)", error.what(), full_name(called(root)));
    return report(terminal, message, kUsage, {{"code", "usage"}, {"message", error.what()}});
  }
  return run(*by_app.at(called(root)), Terminal(json));
}

}  // namespace
}  // namespace milepost::cli

int main(int argc, char** argv) {
  // A file that the tool opens must never become its standard output or error because these were closed.
  for (int fd = 0; fd <= STDERR_FILENO; ++fd) {
    if (fcntl(fd, F_GETFD) == -1 && open("/dev/null", fd == STDIN_FILENO ? O_RDONLY : O_WRONLY) != fd)
      return 4;
  }
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow (ulimit -f) is an error of the write
  return milepost::cli::main(argc, argv);
}
