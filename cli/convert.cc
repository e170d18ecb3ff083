#include "command.h"
#include "conversion.h"

namespace milepost::cli {
namespace {

class Convert final : public Command {
 public:
  const char* name() const override { return "convert"; }
  const char* summary() const override { return "Write a checkpoint in another format"; }
  const char* description() const override {
    return "Writes a checkpoint in another format, in bounded memory. Names stay. What the target cannot "
           "hold (objects and "
           "complex128 in safetensors, for instance) is refused with the list of it, unless "
           "--skip-unsupported drops it. A cast "
           "that loses precision happens only when --dtype asks for it.";
  }
  const char* examples() const override {
    return "  milepost convert step-1000 hf_out --to safetensors --dtype bfloat16 --skip-unsupported\n"
           "  milepost convert step-1000 step-1000.pth --to torch\n"
           "  # what would it take?\n"
           "  milepost convert model_folder dcp_out --to dcp --dry-run\n";
  }

  void declare(Flags& flags) override {
    flags.choice("--to", &to_, {"dcp", "safetensors", "torch"}, true, "format of DST");
    conversion_.declare(flags);
    flags.choice("--dtype", &dtype_, {"float32", "bfloat16", "float16"}, false,
                 "cast the model's floating tensors; integers and bools keep theirs");
    flags.bytes("--shard-size", &conversion_.options.shard_size_bytes, 1,
                "safetensors: most bytes of tensors in one file");
    flags.flag("--skip-unsupported", &conversion_.options.skip_unsupported,
               "leave out what the format cannot hold, and say so");
  }

  int run(const Terminal& terminal) override {
    constexpr CheckpointFormat kFormats[] = {CheckpointFormat::kDcp, CheckpointFormat::kSafetensors,
                                             CheckpointFormat::kTorchSave};
    constexpr DType kDTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16};
    conversion_.options.to = kFormats[*to_];
    if (dtype_) conversion_.options.dtype = kDTypes[*dtype_];
    return conversion_.run(terminal, "convert");
  }

 private:
  Conversion conversion_;
  std::optional<size_t> to_, dtype_;
};

}  // namespace

std::unique_ptr<Command> convert_command() { return std::make_unique<Convert>(); }

}  // namespace milepost::cli
