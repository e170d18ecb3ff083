#include "command.h"
#include "milepost/base/error.h"
#include "model_conversion.h"
#include "open_path.h"

namespace milepost::cli {
namespace {

class Export final : public Command {
 public:
  const char* name() const override { return "export"; }
  const char* summary() const override { return "Turn a checkpoint into a Hugging Face model folder"; }
  const char* description() const override {
    return "Writes the model of a checkpoint as a Hugging Face folder: safetensors shards with their index "
           "and a config.json that transformers loads, in one pass and bounded memory. A full training "
           "checkpoint will do; what is not the model is left out and named. A folder given with --like "
           "lends its config.json, its tokenizer and generation files, and the names of its shards.";
  }
  const char* examples() const override {
    return "  milepost export step-1000 hf_out --dtype bfloat16\n"
           "  milepost export step-1000 hf_out --like Llama-3.1-8B --dtype bfloat16\n"
           "  milepost export step-1000 hf_out --fp8\n"
           "  # an fp8 release as bfloat16\n"
           "  milepost export DeepSeek-V3.1-Base hf_bf16 --like DeepSeek-V3.1-Base\n";
  }

  void declare(Flags& flags) override {
    export_.conversion.may_write_dcp = false;
    export_.declare(flags);
    flags.text("--like", &like_, "HF_DIR", "take config.json, tokenizer and shard names from this folder");
    flags.flag("--fp8", &fp8_, "write weights as fp8 (e4m3) with a scale for each block of 128 x 128");
    flags.bytes("--shard-size", &export_.conversion.options.shard_size_bytes, 1,
                "most bytes of tensors in one file");
  }

  int run(const Terminal& terminal) override {
    Conversion& conversion = export_.conversion;
    conversion.take_options();
    conversion.options.to = CheckpointFormat::kSafetensors;
    const std::optional<DType> dtype = export_.chosen_dtype();
    if (!fp8_) conversion.options.dtype = dtype;  // with fp8 the map itself casts
    if (like_) require_like_folder(*like_);
    const auto source = open_path(conversion.source, conversion.rank);
    NamedModel exported = as_hugging_face(source, choice(), dtype, fp8_);
    add_hugging_face_files(exported, fp8_ ? dtype.value_or(DType::kBFloat16) : dtype, fp8_, like_,
                           &conversion.options);
    return export_.run(terminal, "export", source, exported);
  }

 private:
  // A folder to be like says what the model is, unless something else does.
  ModelChoice choice() const {
    ModelChoice choice = export_.choice();
    if (like_ && !choice.flavor && !choice.config && has_config(*like_)) choice.config = like_;
    return choice;
  }

  static bool has_config(const std::string& folder) {
    const StorageLocation location = resolve_location(folder);
    return location.storage->stat(join_path(location.path, "config.json")).has_value();
  }

  ModelConversion export_;
  std::optional<std::string> like_;
  bool fp8_ = false;
};

}  // namespace

std::unique_ptr<Command> export_command() { return std::make_unique<Export>(); }

}  // namespace milepost::cli
