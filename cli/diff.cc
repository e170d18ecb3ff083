#include "milepost/engine/diff.h"

#include <fmt/format.h>

#include "command.h"
#include "json.h"
#include "open_path.h"
#include "progress_meter.h"
#include "units.h"

namespace milepost::cli {
namespace {

Json difference_json(const Difference& difference) {
  Json json = {{"kind", difference_kind_name(difference.kind)}, {"name", difference.name}};
  if (difference.kind != Difference::Kind::kOnlyInB) json["a"] = difference.a;
  if (difference.kind != Difference::Kind::kOnlyInA) json["b"] = difference.b;
  if (difference.num_different > 0) {
    json["num_different"] = difference.num_different;
    json["max_abs"] = json_number(difference.max_abs);
    json["max_rel"] = json_number(difference.max_rel);
    json["first_index"] = difference.first_index;
  }
  return json;
}

std::string values_text(const Difference& difference) {
  const std::string a = printable(difference.a, 300), b = printable(difference.b, 300);
  if (difference.num_different == 0) return fmt::format("value {} against {}", a, b);
  return fmt::format("{} differ{}, max abs {:.6g}, max rel {:.6g}, first at [{}]: {} against {}",
                     count_text(difference.num_different, "element"),
                     difference.num_different == 1 ? "s" : "", difference.max_abs, difference.max_rel,
                     fmt::join(difference.first_index, ", "), a, b);
}

std::string difference_text(const Difference& difference) {
  switch (difference.kind) {
    case Difference::Kind::kOnlyInA:
      return fmt::format("only in A: {}", difference.a);
    case Difference::Kind::kOnlyInB:
      return fmt::format("only in B: {}", difference.b);
    case Difference::Kind::kKind:
      return fmt::format("{} against {}", difference.a, difference.b);
    case Difference::Kind::kShape:
      return fmt::format("shape {} against {}", difference.a, difference.b);
    case Difference::Kind::kDType:
      return fmt::format("dtype {} against {}", difference.a, difference.b);
    case Difference::Kind::kValues:
      return values_text(difference);
  }
  return {};
}

class Diff final : public Command {
 public:
  const char* name() const override { return "diff"; }
  const char* summary() const override { return "Compare two checkpoints entry by entry"; }
  const char* description() const override {
    return "Compares two checkpoints entry by entry, whatever their formats and layouts: entries that only "
           "one has, shapes, dtypes, "
           "then values. Without a tolerance values must agree bit by bit; with one, |a - b| <= atol + rtol "
           "* |b| is enough, "
           "NaN equals NaN, and float32 may be compared with bfloat16. Exit status 1 when anything differs.";
  }
  const char* examples() const override {
    return "  milepost diff step-1000 step-1000-resharded\n"
           "  milepost diff step-1000 hf_out --match 'layers.*' --rtol 1e-2 --atol 1e-6\n";
  }

  void declare(Flags& flags) override {
    flags.positional("A", &a_, "a checkpoint of any format");
    flags.positional("B", &b_, "a checkpoint of any format");
    flags.texts("--match", &options_.match, "GLOB",
                "compare only entries whose whole name matches; repeatable");
    flags.number("--rtol", &options_.rtol, "relative tolerance");
    flags.number("--atol", &options_.atol, "absolute tolerance");
    flags.integer("--threads", &threads_, 1, 1024, "worker threads (default: the cores, at most 16)");
    flags.bytes("--max-memory", &options_.max_memory_bytes, int64_t{16} << 20, "memory for buffers");
    flags.integer("--rank", &rank_, 0, INT64_MAX,
                  "read this rank's own metadata, where each rank wrote its own");
  }

  int run(const Terminal& terminal) override {
    options_.num_threads = static_cast<int>(threads_);
    const DiffReport report = compare(terminal);
    if (terminal.json()) {
      Json json = {{"equal", report.equal()},
                   {"tensors_compared", report.tensors_compared},
                   {"objects_compared", report.objects_compared},
                   {"bytes_compared", report.bytes_compared}};
      json["differences"] = Json::array();
      for (const Difference& difference : report.differences)
        json["differences"].push_back(difference_json(difference));
      terminal.write(json_text(json));
    } else {
      print(terminal, report);
    }
    return report.equal() ? kDone : kFoundWanting;
  }

 private:
  DiffReport compare(const Terminal& terminal) {
    const std::shared_ptr<const Checkpoint> a = open_path(a_, rank_), b = open_path(b_, rank_);
    ProgressMeter meter(terminal, "diff");
    options_.progress = meter.progress();
    return diff(a, b, options_);
  }

  void print(const Terminal& terminal, const DiffReport& report) const {
    for (const Difference& difference : report.differences) {
      const std::string name = difference.name.empty() ? "''" : printable(difference.name, 400);
      terminal.print("{}  {}\n", terminal.paint(Colour::kBold, name), difference_text(difference));
    }
    const auto count = static_cast<int64_t>(report.differences.size());
    terminal.print("{}; compared {} ({}) and {}\n",
                   report.equal()
                       ? terminal.paint(Colour::kGreen, "no difference")
                       : terminal.paint(Colour::kRed, count == 1 ? "1 entry differs"
                                                                 : count_text(count) + " entries differ"),
                   count_text(report.tensors_compared, "tensor"), bytes_text(report.bytes_compared),
                   count_text(report.objects_compared, "object"));
  }

  std::string a_, b_;
  int64_t threads_ = 0, rank_ = -1;
  DiffOptions options_;
};

}  // namespace

std::unique_ptr<Command> diff_command() { return std::make_unique<Diff>(); }

}  // namespace milepost::cli
