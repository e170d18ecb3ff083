#include "model_conversion.h"

#include <fmt/format.h>

#include "command.h"
#include "milepost/base/error.h"
#include "milepost/storage/storage.h"

namespace milepost::cli {
namespace {

// A file that is written as a stream.
class FileSink final : public ByteSink {
 public:
  explicit FileSink(const std::string& path) {
    const StorageLocation location = resolve_location(path);
    file_ = location.storage->open_write(location.path, {0, false});
  }
  void append(Bytes bytes) override {
    file_->write_at(written_, {&bytes, 1});
    written_ += static_cast<int64_t>(bytes.size());
  }
  void finish() { file_->close(); }

 private:
  std::unique_ptr<WritableFile> file_;
  int64_t written_ = 0;
};

}  // namespace

void declare_model_flags(Flags& flags, std::optional<std::string>* model, std::optional<std::string>* flavor,
                         std::optional<std::string>* config, int64_t* mtp_layers) {
  if (model != nullptr) flags.text("--model", model, "MODEL", "llama3 or deepseek_v3 (default: found out)");
  flags.text("--flavor", flavor, "FLAVOR", "size of the model, such as 8B or 671B (default: found out)");
  flags.text("--config", config, "FILE", "a config.json, or a folder that holds one, with the model's sizes");
  flags.integer("--mtp-layers", mtp_layers, 0, 64,
                "multi-token prediction stages to take over, the others are left out");
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
  if (report_path) {
    conversion.after_converting = [this, &source, &named](const ConvertReport& report) {
      FileSink sink(*report_path);
      write_model_report(source, named, report, sink);
      sink.finish();
    };
  }
  return conversion.run(terminal, label, named.checkpoint);
}

}  // namespace milepost::cli
