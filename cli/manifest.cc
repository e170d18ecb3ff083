#include <fmt/format.h>

#include "command.h"
#include "json.h"
#include "milepost/engine/manifest_files.h"
#include "milepost/storage/storage.h"
#include "progress_meter.h"
#include "units.h"

namespace milepost::cli {
namespace {

// The flags that both commands have.
struct Target {
  std::string folder;
  int64_t threads = 0;

  void declare(Flags& flags) {
    flags.positional("PATH", &folder, "the folder of a checkpoint");
    flags.integer("--threads", &threads, 1, 1024, "worker threads (default: the cores, at most 16)");
  }
  ManifestOptions options(ProgressMeter& meter) const {
    return {static_cast<int>(threads), meter.progress()};
  }
};

class ManifestWrite final : public Command {
 public:
  const char* name() const override { return "manifest write"; }
  const char* summary() const override {
    return "Write the SHA-256 of every file into the checkpoint's manifest";
  }
  const char* description() const override {
    return "Hashes every file directly in the folder and writes _checkpoint_hash_manifest.json there; one "
           "that exists is replaced.";
  }
  const char* examples() const override { return "  milepost manifest write outputs/checkpoint/step-1000\n"; }
  void declare(Flags& flags) override { target_.declare(flags); }

  int run(const Terminal& terminal) override {
    ProgressMeter meter(terminal, "hash");
    const manifest::Hashes hashes = write_manifest(resolve_location(target_.folder), target_.options(meter));
    meter.finish();
    const int64_t bytes = meter.progress()->done_bytes;
    if (terminal.json()) {
      Json json = {{"path", target_.folder}, {"files", hashes.size()}, {"bytes", bytes}};
      json["hashes"] = Json::object();
      for (const auto& [name, digest] : hashes) json["hashes"][name] = digest;
      terminal.write(json_text(json));
    } else {
      terminal.print("{} {}: {}, {}\n", terminal.paint(Colour::kGreen, "wrote"),
                     printable(join_path(target_.folder, manifest::kManifestName), 400),
                     count_text(static_cast<int64_t>(hashes.size()), "file"), bytes_text(bytes));
    }
    return kDone;
  }

 private:
  Target target_;
};

class ManifestVerify final : public Command {
 public:
  const char* name() const override { return "manifest verify"; }
  const char* summary() const override { return "Check every file against the checkpoint's manifest"; }
  const char* description() const override {
    return "Hashes the files that the manifest lists and compares. Exit status 1 when a file is missing or "
           "differs, or when the "
           "manifest itself is damaged or unfinished; 3 when there is none. Files that it does not list are "
           "named, not a fault.";
  }
  const char* examples() const override {
    return "  milepost manifest verify outputs/checkpoint/step-1000\n";
  }
  void declare(Flags& flags) override { target_.declare(flags); }

  int run(const Terminal& terminal) override {
    ManifestCheck check;
    try {
      ProgressMeter meter(terminal, "hash");
      check = check_manifest(resolve_location(target_.folder), target_.options(meter));
    } catch (const CheckpointManifestError& error) {
      return unreadable(terminal, error);
    }
    if (!check.present) {
      StorageError error(ErrorCode::kNotFound, "there is no manifest in this folder", target_.folder);
      error.set_hint("write one with `milepost manifest write`, once the checkpoint is known to be whole");
      throw error;
    }
    if (terminal.json()) {
      terminal.write(json_text({{"path", target_.folder},
                                {"good", check.good()},
                                {"files", check.files},
                                {"bytes", check.bytes},
                                {"mismatched", check.mismatched},
                                {"missing", check.missing},
                                {"extra", check.extra}}));
    } else {
      print(terminal, check);
    }
    return check.good() ? kDone : kFoundWanting;
  }

 private:
  int unreadable(const Terminal& terminal, const CheckpointManifestError& error) const {
    if (terminal.json()) {
      terminal.write(json_text({{"path", target_.folder}, {"good", false}, {"error", json_error(error)}}));
    } else {
      terminal.print("{} {}\n", terminal.paint(Colour::kRed, "error:"), error.what());
    }
    return kFoundWanting;
  }

  void print(const Terminal& terminal, const ManifestCheck& check) const {
    const std::string error = terminal.paint(Colour::kRed, "error:");
    for (const std::string& line : check.mismatched) terminal.print("{} {}\n", error, printable(line, 400));
    for (const std::string& name : check.missing) {
      terminal.print("{} {}: the manifest lists this file, but it is missing\n", error, printable(name, 400));
    }
    for (const std::string& name : check.extra) {
      terminal.print("{} {}: the manifest does not list this file\n", terminal.paint(Colour::kDim, "note:"),
                     printable(name, 400));
    }
    terminal.print("{}: {}: {} hashed, {}\n", printable(target_.folder, 400),
                   check.good() ? terminal.paint(Colour::kGreen, "all files agree with the manifest")
                                : terminal.paint(Colour::kRed, "the manifest does not agree"),
                   count_text(check.files, "file"), bytes_text(check.bytes));
  }

  Target target_;
};

}  // namespace

std::unique_ptr<Command> manifest_write_command() { return std::make_unique<ManifestWrite>(); }
std::unique_ptr<Command> manifest_verify_command() { return std::make_unique<ManifestVerify>(); }

}  // namespace milepost::cli
