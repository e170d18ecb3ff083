#include <fmt/format.h>

#include "command.h"
#include "conversion.h"
#include "milepost/base/error.h"
#include "milepost/engine/model.h"
#include "model_conversion.h"
#include "units.h"

namespace milepost::cli {
namespace {

class Synth final : public Command {
 public:
  const char* name() const override { return "synth"; }
  const char* summary() const override { return "Make a synthetic Hugging Face model, to try things out"; }
  const char* description() const override {
    return "Writes a Hugging Face folder of pseudo-random weights with the shapes of a flavor, or of a model "
           "scaled down to about --bytes: shards, index and config.json. Equal arguments give equal bytes. "
           "With --sparse the files have the right sizes, but holes for data, and take no space.";
  }
  const char* examples() const override {
    return "  milepost synth deepseek_v3 hf_small --bytes 2GB\n"
           "  milepost synth llama3 hf_8b --flavor 8B\n"
           "  # the shape of the largest model, to plan with\n"
           "  milepost synth deepseek_v3 hf_671b --flavor 671B --fp8 --sparse\n"
           "  milepost import hf_671b dcp_out --dry-run\n";
  }

  void declare(Flags& flags) override {
    flags.positional("MODEL", &model_, "llama3 or deepseek_v3");
    flags.positional("DST", &conversion_.destination, "the folder to write");
    declare_model_flags(flags, nullptr, &flavor_, &config_, &mtp_layers_);
    flags.bytes("--bytes", &bytes_, 1, "scale the model down to about so many bytes of weights");
    flags.choice("--dtype", &dtype_, {"float32", "bfloat16", "float16"}, false,
                 "dtype of the weights (default: bfloat16)");
    flags.flag("--fp8", &fp8_,
               "fp8 weights with a scale for each block of 128 x 128, as DeepSeek releases them");
    flags.integer("--seed", &seed_, 0, UINT32_MAX, "another seed, other weights");
    flags.flag("--sparse", &sparse_, "holes instead of data");
    flags.bytes("--shard-size", &conversion_.options.shard_size_bytes, 1,
                "most bytes of tensors in one file");
    flags.bytes("--max-memory", &conversion_.options.max_memory_bytes, int64_t{16} << 20,
                "memory for buffers");
    flags.integer("--threads", &conversion_.threads, 1, 1024,
                  "worker threads (default: the cores, at most 16)");
    flags.flag("--dry-run", &conversion_.options.dry_run, "write nothing; print what it would take");
    flags.flag("--overwrite", &conversion_.options.overwrite, "replace DST if it holds a checkpoint");
    flags.flag("--resume", &conversion_.options.resume, "go on with what an interrupted run left");
    flags.hidden_flag("--no-sync", &conversion_.no_sync);
  }

  int run(const Terminal& terminal) override {
    constexpr DType kDTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16};
    const DType dtype = kDTypes[dtype_.value_or(1)];
    flavor::Model model = wanted_model();
    const int64_t parameter_bytes = fp8_ ? 1 : dtype_size(dtype);
    if (bytes_ > 0) model = flavor::scaled_down(model, bytes_ / parameter_bytes);
    conversion_.take_options();
    ConvertOptions& options = conversion_.options;
    options.to = CheckpointFormat::kSafetensors;
    NamedModel made;
    made.model = model;
    made.checkpoint = synthetic_hugging_face(model, dtype, fp8_, static_cast<uint64_t>(seed_));
    add_hugging_face_files(made, dtype, fp8_, std::nullopt, &options);
    conversion_.model =
        fmt::format("{} of {} parameters", model.text(), count_text(flavor::num_parameters(model)));
    conversion_.hollow = sparse_;
    return conversion_.run(terminal, "synth", made.checkpoint);
  }

 private:
  // The flavor that is named; else the smallest that has --bytes; else the debug model.
  flavor::Model wanted_model() const {
    flavor::Model model;
    if (flavor_ || config_) {
      model = named_model(model_, flavor_, config_);
    } else {
      const std::vector<std::string_view> names = flavor::flavor_names(model_);
      for (std::string_view name : names) {
        model = flavor::find(model_, name);
        if (flavor::num_parameters(model) >= bytes_ / (fp8_ ? 1 : 2)) break;
      }
    }
    if (mtp_layers_ >= 0) set_mtp_layers(&model, mtp_layers_);
    return model;
  }

  Conversion conversion_;
  std::string model_;
  std::optional<std::string> flavor_, config_;
  std::optional<size_t> dtype_;
  int64_t mtp_layers_ = -1, bytes_ = 0, seed_ = 0;
  bool fp8_ = false, sparse_ = false;
};

}  // namespace

std::unique_ptr<Command> synth_command() { return std::make_unique<Synth>(); }

}  // namespace milepost::cli
