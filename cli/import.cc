#include "command.h"
#include "model_conversion.h"
#include "open_path.h"

namespace milepost::cli {
namespace {

class Import final : public Command {
 public:
  const char* name() const override { return "import"; }
  const char* summary() const override {
    return "Turn a Hugging Face model into a DCP checkpoint to train from";
  }
  const char* description() const override {
    return "Writes a Hugging Face model as a DCP checkpoint under TorchTitan's names, in bounded memory: "
           "experts stacked, rows of Llama's queries and keys reordered, fp8 and MXFP4 dequantised. The "
           "model is found out from config.json, or from names and shapes. Every tensor is accounted for "
           "before a byte is written. A source that has TorchTitan's names already (safetensors, .pth, DCP) "
           "is taken as it is.";
  }
  const char* examples() const override {
    return "  milepost import Llama-3.1-8B dcp_out\n"
           "  milepost import DeepSeek-V3.1-Base dcp_out --dtype float32 --report report.json\n"
           "  # what would it take?\n"
           "  milepost import DeepSeek-V3.1-Base dcp_out --dry-run\n";
  }

  void declare(Flags& flags) override { import_.declare(flags); }

  int run(const Terminal& terminal) override {
    import_.conversion.take_options();
    import_.conversion.options.to = CheckpointFormat::kDcp;
    import_.conversion.options.dtype = import_.chosen_dtype();
    const auto source = open_path(import_.conversion.source, import_.conversion.rank);
    const NamedModel native = as_native(source, import_.choice(), import_.chosen_dtype());
    return import_.run(terminal, "import", source, native);
  }

 private:
  ModelConversion import_;
};

}  // namespace

std::unique_ptr<Command> import_command() { return std::make_unique<Import>(); }

}  // namespace milepost::cli
