#include "command.h"
#include "milepost/base/error.h"
#include "milepost/engine/ema.h"
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
           "lends its config.json, its tokenizer and generation files, and the names of its shards. With "
           "--ema "
           "the weights are the moving averages that a training run saved beside them.";
  }
  const char* examples() const override {
    return "  milepost export step-1000 hf_out --dtype bfloat16\n"
           "  milepost export step-1000 hf_out --like Llama-3.1-8B --dtype bfloat16\n"
           "  milepost export step-1000 hf_out --fp8\n"
           "  milepost export step-1000 hf_ema --ema\n"
           "  # an fp8 release as bfloat16\n"
           "  milepost export DeepSeek-V3.1-Base hf_bf16 --like DeepSeek-V3.1-Base\n";
  }

  void declare(Flags& flags) override {
    export_.conversion.may_write_dcp = false;
    export_.declare(flags);
    flags.text("--like", &like_, "HF_DIR", "take config.json, tokenizer and shard names from this folder");
    flags.flag("--fp8", &fp8_, "write weights as fp8 (e4m3) with a scale for each block of 128 x 128");
    flags.flag("--ema", &ema_, "write the moving averages of the weights in place of the weights");
    flags.text("--ema-key", &ema_key_, "COPY",
               "which of several averages, such as decay_0p999; implies --ema");
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
    const auto model = ema_ || ema_key_ ? averaged(source) : source;
    NamedModel exported = as_hugging_face(model, choice(), dtype, fp8_);
    add_hugging_face_files(exported, fp8_ ? dtype.value_or(DType::kBFloat16) : dtype, fp8_, like_,
                           &conversion.options);
    return export_.run(terminal, "export", model, exported);
  }

 private:
  // A folder to be like says what the model is, unless something else does.
  ModelChoice choice() const {
    ModelChoice choice = export_.choice();
    if (like_ && !choice.flavor && !choice.config && has_config(*like_)) choice.config = like_;
    return choice;
  }

  std::shared_ptr<const Checkpoint> averaged(const std::shared_ptr<const Checkpoint>& source) const {
    const std::optional<EmaCopy> copy = choose_ema(*source, ema_key_.value_or(""));
    if (copy) return ema_as_model(source, *copy, choice());
    MissingKeyError error("it holds no moving averages of weights",
                          "leave out --ema; runs with --ema-weights.enable save them, but not in a last "
                          "checkpoint of only the model");
    error.set_key(kEmaPart);
    error.set_path(source->path());
    throw error;
  }

  static bool has_config(const std::string& folder) {
    const StorageLocation location = resolve_location(folder);
    return location.storage->stat(join_path(location.path, "config.json")).has_value();
  }

  ModelConversion export_;
  std::optional<std::string> like_, ema_key_;
  bool fp8_ = false, ema_ = false;
};

}  // namespace

std::unique_ptr<Command> export_command() { return std::make_unique<Export>(); }

}  // namespace milepost::cli
