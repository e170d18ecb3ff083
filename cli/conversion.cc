#include "conversion.h"

#include <fmt/format.h>

#include "command.h"
#include "json.h"
#include "milepost/engine/model.h"
#include "open_path.h"
#include "progress_meter.h"
#include "units.h"

namespace milepost::cli {
namespace {

constexpr size_t kMaxListed = 40, kMaxLeftOut = 10;

Json report_json(const Conversion& conversion, const ConvertReport& report, int64_t peak_bytes) {
  Json json = {{"source", conversion.source},
               {"destination", conversion.destination},
               {"format", format_name(conversion.options.to)},
               {"dry_run", conversion.options.dry_run},
               {"model", conversion.model.empty() ? Json() : Json(conversion.model)},
               {"tensors", report.tensors},
               {"objects", report.objects},
               {"casts", report.casts},
               {"bytes_in", report.bytes_in},
               {"bytes_out", report.bytes_out},
               {"bytes_resumed", report.bytes_resumed},
               {"seconds", report.seconds},
               {"planned_buffer_bytes", report.peak_buffer_bytes},
               {"peak_anonymous_bytes", peak_bytes},
               {"disk_bytes_needed", report.disk_bytes_needed},
               {"disk_bytes_free", report.disk_bytes_free}};
  json["files"] = Json::array();
  for (const ConvertReport::File& file : report.files)
    json["files"].push_back({{"name", file.name}, {"bytes", file.size_bytes}});
  json["skipped"] = report.skipped;
  json["left_out"] = conversion.left_out;
  json["notes"] = conversion.notes;
  json["warnings"] = report.warnings;
  return json;
}

std::string entries_text(size_t count) {
  return count == 1 ? "1 entry" : count_text(static_cast<int64_t>(count)) + " entries";
}

void print_list(const Terminal& terminal, const std::vector<std::string>& lines, size_t most = kMaxListed) {
  for (size_t i = 0; i < lines.size() && i < most; ++i) terminal.print("  {}\n", printable(lines[i], 400));
  if (lines.size() > most) terminal.print("  ... and {} more (--json lists all)\n", lines.size() - most);
}

void print_common(const Terminal& terminal, const Conversion& conversion, const ConvertReport& report) {
  if (!conversion.model.empty()) terminal.print("{}\n", terminal.paint(Colour::kBold, conversion.model));
  for (const std::string& note : conversion.notes) {
    terminal.print("{} {}\n", terminal.paint(Colour::kCyan, "note:"), printable(note, 1000));
  }
  if (!conversion.left_out.empty()) {
    terminal.print("{} {} of the source:\n", terminal.paint(Colour::kYellow, "left out"),
                   entries_text(conversion.left_out.size()));
    print_list(terminal, conversion.left_out, kMaxLeftOut);
  }
  for (const std::string& warning : report.warnings) {
    terminal.print("{} {}\n", terminal.paint(Colour::kYellow, "warning:"), printable(warning, 1000));
  }
  if (!report.skipped.empty()) {
    terminal.print("{} {} that the format cannot hold:\n", terminal.paint(Colour::kYellow, "left out"),
                   entries_text(report.skipped.size()));
    print_list(terminal, report.skipped);
  }
}

std::string contents_text(const ConvertReport& report) {
  std::string text = count_text(report.tensors, "tensor");
  if (report.casts > 0) text += fmt::format(" ({} cast)", count_text(report.casts));
  if (report.objects > 0) text += ", " + count_text(report.objects, "object");
  return text;
}

void print_plan(const Terminal& terminal, const Conversion& conversion, const ConvertReport& report) {
  terminal.print("would write {}: {}, {} in {}\n", printable(conversion.destination, 400),
                 contents_text(report), bytes_text(report.bytes_out),
                 count_text(static_cast<int64_t>(report.files.size()), "file"));
  std::vector<std::string> lines;
  lines.reserve(report.files.size());
  for (const ConvertReport::File& file : report.files) {
    lines.push_back(fmt::format("{}  {}", file.name.empty() ? conversion.destination : file.name,
                                bytes_text(file.size_bytes)));
  }
  print_list(terminal, lines);
  terminal.print("memory: at most {} of buffers\n", bytes_text(report.peak_buffer_bytes));
  terminal.print("disk: {} needed, {} free\n", bytes_text(report.disk_bytes_needed),
                 bytes_text(report.disk_bytes_free));
}

void print_done(const Terminal& terminal, const Conversion& conversion, const ConvertReport& report,
                int64_t peak_bytes) {
  const double rate = report.seconds > 0 ? static_cast<double>(report.bytes_out) / report.seconds / 1e9 : 0;
  terminal.print("{} {}: {}, {} in {}\n", terminal.paint(Colour::kGreen, "wrote"),
                 printable(conversion.destination, 400), contents_text(report), bytes_text(report.bytes_out),
                 count_text(static_cast<int64_t>(report.files.size()), "file"));
  if (report.bytes_resumed > 0) {
    terminal.print("{} of it was there, verified, from the interrupted run\n",
                   bytes_text(report.bytes_resumed));
  }
  terminal.print("{}, {:.2f} GB/s, peak memory {}\n", seconds_text(report.seconds), rate,
                 bytes_text(peak_bytes));
}

}  // namespace

void Conversion::declare(Flags& flags) {
  flags.positional("SRC", &source, "a checkpoint of any format");
  flags.positional("DST", &destination, "the folder or file to write; appears whole or not at all");
  declare_options(flags);
}

void Conversion::declare_options(Flags& flags) {
  flags.texts("--match", &options.match, "GLOB", "take only entries whose whole name matches; repeatable");
  if (may_write_dcp) {
    flags.integer("--files", &files, 1, 10'000,
                  "DCP: data files each rank writes (default: 1, or 4 from 64 MiB on)");
  }
  flags.bytes("--max-memory", &options.max_memory_bytes, int64_t{16} << 20, "memory for buffers");
  flags.integer("--threads", &threads, 1, 1024, "worker threads (default: the cores, at most 16)");
  flags.flag("--dry-run", &options.dry_run,
             "write nothing; print the files, the memory and the disk space that it would take");
  flags.flag("--overwrite", &options.overwrite,
             "replace DST if it holds a checkpoint; the old one stays until the new one is whole");
  flags.flag(
      "--resume", &options.resume,
      "continue an interrupted run with the same SRC, DST and options: what it wrote is verified and kept");
  flags.integer("--rank", &rank, 0, INT64_MAX,
                "read this rank's own metadata, where each rank wrote its own");
  flags.hidden_flag("--no-sync", &no_sync);
}

void Conversion::take_options() {
  options.num_threads = static_cast<int>(threads);
  options.files = static_cast<int>(files);
  options.sync = !no_sync;
}

int Conversion::run(const Terminal& terminal, const std::string& label) {
  take_options();
  return run(terminal, label, open_path(source, rank));
}

int Conversion::run(const Terminal& terminal, const std::string& label,
                    const std::shared_ptr<const Checkpoint>& checkpoint) {
  ProgressMeter meter(terminal, label);
  options.progress = meter.progress();
  const ConvertReport report =
      hollow ? write_hollow(checkpoint, destination, options) : convert(checkpoint, destination, options);
  meter.finish();
  if (after_converting) after_converting(report);
  if (terminal.json()) {
    terminal.write(json_text(report_json(*this, report, meter.peak_anonymous_bytes())));
    return kDone;
  }
  print_common(terminal, *this, report);
  if (options.dry_run) {
    print_plan(terminal, *this, report);
  } else {
    print_done(terminal, *this, report, meter.peak_anonymous_bytes());
  }
  return kDone;
}

}  // namespace milepost::cli
