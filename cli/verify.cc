#include "milepost/engine/verify.h"

#include <fmt/format.h>

#include "command.h"
#include "json.h"
#include "open_path.h"
#include "progress_meter.h"
#include "units.h"

namespace milepost::cli {
namespace {

Json finding_json(const Finding& finding) {
  Json json = {{"severity", severity_name(finding.severity)}, {"code", error_code_name(finding.code)}};
  if (!finding.path.empty()) json["path"] = finding.path;
  if (!finding.key.empty()) json["key"] = finding.key;
  if (finding.offset >= 0) json["offset"] = finding.offset;
  json["text"] = finding.text;
  return json;
}

Json report_json(const std::string& path, const VerifyReport& report) {
  Json json = {{"path", path},
               {"format", report.format},
               {"sound", report.sound()},
               {"errors", report.num_errors},
               {"warnings", report.num_warnings},
               {"notes", report.num_notes},
               {"files", report.files},
               {"tensors", report.tensors},
               {"objects", report.objects},
               {"chunks", report.chunks},
               {"bytes_checked", report.bytes_checked}};
  json["findings"] = Json::array();
  for (const Finding& finding : report.findings) json["findings"].push_back(finding_json(finding));
  return json;
}

Colour colour_of(Finding::Severity severity) {
  switch (severity) {
    case Finding::Severity::kError:
      return Colour::kRed;
    case Finding::Severity::kWarning:
      return Colour::kYellow;
    case Finding::Severity::kNote:
      break;
  }
  return Colour::kDim;
}

class Verify final : public Command {
 public:
  const char* name() const override { return "verify"; }
  const char* summary() const override { return "Check that a checkpoint is whole and undamaged"; }
  const char* description() const override {
    return "Checks everything that can be wrong with a checkpoint and reports all of it: missing, stale and "
           "cut files, ranges that "
           "overlap or leave their file, tensors that are not covered, dtypes and shapes that disagree, "
           "damaged archives and "
           "checksums, names that are not unique or leave the folder. Every byte is read once. Exit status 1 "
           "when an error is "
           "found; warnings (it loads, but look at it) and notes leave it at 0.";
  }
  const char* examples() const override {
    return "  milepost verify outputs/checkpoint/step-1000\n"
           "  # indexes and headers only: seconds, even for terabytes\n"
           "  milepost verify outputs/checkpoint/step-1000 --structure-only\n";
  }

  void declare(Flags& flags) override {
    flags.positional("PATH", &path_, "a DCP folder, a safetensors file or folder, or a torch.save file");
    flags.flag("--structure-only", &structure_only_, "do not read tensors' bytes, so leave checksums alone");
    flags.integer("--rank", &options_.open.rank, 0, INT64_MAX,
                  "check what this rank's own metadata describes only");
    flags.integer("--threads", &threads_, 1, 1024, "worker threads (default: the cores, at most 16)");
    flags.integer("--max-findings", &options_.max_findings, 1, 1'000'000,
                  "list at most so many (default 1000); all are counted");
  }

  int run(const Terminal& terminal) override {
    options_.payloads = !structure_only_;
    options_.num_threads = static_cast<int>(threads_);
    const VerifyReport report = check(terminal);
    if (terminal.json()) {
      terminal.write(json_text(report_json(path_, report)));
    } else {
      print(terminal, report);
    }
    return report.sound() ? kDone : kFoundWanting;
  }

 private:
  VerifyReport check(const Terminal& terminal) {
    ProgressMeter meter(terminal, "verify");
    options_.progress = meter.progress();
    try {
      return verify(path_, options_);
    } catch (const StorageError& error) {
      if (error.code() == ErrorCode::kNotFound) open_path(path_);  // throws the same with more to say
      throw;
    }
  }

  void print(const Terminal& terminal, const VerifyReport& report) const {
    for (const Finding& finding : report.findings) {
      const std::string label = fmt::format("{}:", severity_name(finding.severity));
      terminal.print("{} {}\n", terminal.paint(colour_of(finding.severity), label), finding.text);
    }
    const int64_t found = report.num_errors + report.num_warnings + report.num_notes;
    if (found > static_cast<int64_t>(report.findings.size())) {
      terminal.print("... and {} more\n", found - static_cast<int64_t>(report.findings.size()));
    }
    const std::string verdict =
        report.sound() ? terminal.paint(Colour::kGreen, "sound") : terminal.paint(Colour::kRed, "not sound");
    terminal.print("{}: {}: {}, {}, {}\n", printable(path_, 400), verdict,
                   count_text(report.num_errors, "error"), count_text(report.num_warnings, "warning"),
                   count_text(report.num_notes, "note"));
    terminal.print("checked {}: {}, {} in {}, {}; {} read\n", report.format, count_text(report.files, "file"),
                   count_text(report.tensors, "tensor"), count_text(report.chunks, "chunk"),
                   count_text(report.objects, "object"), bytes_text(report.bytes_checked));
  }

  std::string path_;
  bool structure_only_ = false;
  int64_t threads_ = 0;
  VerifyOptions options_;
};

}  // namespace

std::unique_ptr<Command> verify_command() { return std::make_unique<Verify>(); }

}  // namespace milepost::cli
