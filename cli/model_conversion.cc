#include "model_conversion.h"

#include <fmt/format.h>

#include "command.h"
#include "milepost/base/error.h"
#include "milepost/storage/storage.h"

namespace milepost::cli {
namespace {

// The report's file, written as a stream. Opened before the conversion, so that a place that cannot be
// written is found out early; a file that was not there before goes away again unless it is finished.
class ReportFile final : public ByteSink {
 public:
  explicit ReportFile(const std::string& path) : location_(resolve_location(path)) {
    is_new_ = !location_.storage->stat(location_.path).has_value();
    WriteFileOptions options;
    options.direct = false;
    options.keep_content = true;  // an older report stays until there is a new one
    file_ = location_.storage->open_write(location_.path, options);
  }
  ~ReportFile() override {
    if (is_finished_ || !is_new_) return;
    try {
      location_.storage->remove_file(location_.path);
    } catch (...) {  // an empty file stays, beside an error that says more
    }
  }
  void append(Bytes bytes) override {
    file_->write_at(written_, {&bytes, 1});
    written_ += static_cast<int64_t>(bytes.size());
  }
  void finish() {
    file_->truncate(written_);
    file_->close();
    is_finished_ = true;
  }

 private:
  StorageLocation location_;
  std::unique_ptr<WritableFile> file_;
  int64_t written_ = 0;
  bool is_new_ = false, is_finished_ = false;
};

// A report must change neither the source nor what replaces the destination.
void require_report_apart(const std::string& report, const Conversion& conversion) {
  const StorageLocation location = resolve_location(report);
  const auto is_in = [&](const std::string& path) {
    return lies_within(location.path, resolve_location(path).path);
  };
  const bool hits_source = is_in(conversion.source) && location.storage->stat(location.path);
  if (!hits_source && !is_in(conversion.destination)) return;
  ValueError error(hits_source ? "the report would overwrite a file of the source"
                               : "the report lies inside the destination, which is not there yet",
                   "choose a place beside it");
  error.set_path(report);
  throw error;
}

}  // namespace

void declare_model_flags(Flags& flags, std::optional<std::string>* model, std::optional<std::string>* flavor,
                         std::optional<std::string>* config, int64_t* mtp_layers) {
  if (model != nullptr) flags.text("--model", model, "MODEL", "llama3 or deepseek_v3 (default: found out)");
  flags.text("--flavor", flavor, "FLAVOR",
             std::string("size of the model, such as 8B or 671B") + (model ? " (default: found out)" : ""));
  flags.text("--config", config, "FILE", "a config.json, or a folder that holds one, with the model's sizes");
  flags.integer("--mtp-layers", mtp_layers, 0, 64,
                model ? "multi-token prediction stages to take over, the others are left out"
                      : "multi-token prediction stages (default: those of the flavor or config.json)");
}

void ModelConversion::declare(Flags& flags) {
  conversion.declare(flags);
  declare_model_flags(flags, &model, &flavor, &config, &mtp_layers);
  flags.choice("--dtype", &dtype, {"float32", "bfloat16", "float16"}, false,
               "cast floating tensors (default: each keeps its own; fp8 becomes bfloat16)");
  flags.flag("--skip-unsupported", &conversion.options.skip_unsupported,
             "leave out tensors that have no place in the model, and say so");
  flags.text("--report", &report_path, "FILE", "write what became of every tensor, as JSON");
}

ModelChoice ModelConversion::choice() const {
  ModelChoice out;
  out.model = model;
  out.flavor = flavor;
  out.config = config;
  if (mtp_layers >= 0) out.mtp_layers = mtp_layers;
  out.drop_unknown = conversion.options.skip_unsupported;
  return out;
}

std::optional<DType> ModelConversion::chosen_dtype() const {
  constexpr DType kDTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16};
  return dtype ? std::optional(kDTypes[*dtype]) : std::nullopt;
}

int ModelConversion::run(const Terminal& terminal, const std::string& label,
                         const std::shared_ptr<const Checkpoint>& source, const NamedModel& named) {
  if (named.model) conversion.model = named.model->text();
  conversion.notes = named.notes;
  for (const adapt::LeftOut& left_out : named.left_out)
    conversion.left_out.push_back(fmt::format("{}: {}", left_out.name, left_out.why));
  std::optional<ReportFile> file;
  if (report_path) {
    require_report_apart(*report_path, conversion);
    file.emplace(*report_path);
    conversion.after_converting = [&](const ConvertReport& report) {
      write_model_report(source, named, conversion.options, report, *file);
      file->finish();
    };
  }
  return conversion.run(terminal, label, named.checkpoint);
}

}  // namespace milepost::cli
