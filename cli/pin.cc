#include <fmt/format.h>

#include "command.h"
#include "json.h"
#include "milepost/base/error.h"
#include "milepost/manager/pins.h"
#include "milepost/manager/steps.h"
#include "units.h"

namespace milepost::cli {
namespace {

class Pin final : public Command {
 public:
  const char* name() const override { return "pin"; }
  const char* summary() const override { return "Keep a step of a run for good, or list those kept"; }
  const char* description() const override {
    return "A pinned step stays, whatever the run's checkpoint.keep_latest_k says, and is not saved over. "
           "PATH "
           "is a step's folder (step-N), which is pinned, or the folder of a run's steps, whose pinned ones "
           "are listed. The pin is an empty folder milepost.pin in the step, which manifests do not cover "
           "and "
           "readers of checkpoints do not look at.";
  }
  const char* examples() const override {
    return "  milepost pin outputs/checkpoint/step-1000\n"
           "  milepost pin outputs/checkpoint/step-1000 --unpin\n"
           "  milepost pin outputs/checkpoint\n";
  }
  void declare(Flags& flags) override {
    flags.positional("PATH", &path_, "a step's folder, or a folder of steps");
    flags.flag("--unpin", &unpin_, "take the pin away");
  }

  int run(const Terminal& terminal) override {
    const StorageLocation location = resolve_location(path_);
    if (unpin_ || manager::step_number(base_name(location.path))) return set(terminal, location);
    const std::optional<FileInfo> info = location.storage->stat(location.path);
    if (!info || !info->is_directory) {
      throw StorageError(ErrorCode::kNotFound, "there is no such folder", location.path);
    }
    list(terminal, manager::pinned_steps(location));
    return kDone;
  }

 private:
  int set(const Terminal& terminal, const StorageLocation& step) const {
    const bool is_changed = manager::set_pin(step, !unpin_);
    if (terminal.json()) {
      terminal.write(json_text({{"path", path_}, {"pinned", !unpin_}, {"changed", is_changed}}));
    } else {
      terminal.print("{} {}{}\n", printable(path_, 400), is_changed ? "is now " : "was already ",
                     unpin_ ? "without a pin" : "pinned");
    }
    return kDone;
  }

  void list(const Terminal& terminal, const std::vector<int64_t>& steps) const {
    if (terminal.json()) {
      terminal.write(json_text({{"path", path_}, {"pinned", steps}}));
      return;
    }
    if (steps.empty()) terminal.print("{}: no step is pinned\n", printable(path_, 400));
    for (const int64_t step : steps) terminal.print("step-{}\n", step);
  }

  std::string path_;
  bool unpin_ = false;
};

}  // namespace

std::unique_ptr<Command> pin_command() { return std::make_unique<Pin>(); }

}  // namespace milepost::cli
