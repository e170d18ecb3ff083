// Models: a checkpoint of a known model under the names of either side, as a derived checkpoint that
// convert(), load() and diff() take.
//
//   auto hf = Checkpoint::open("DeepSeek-V3.1-Base");
//   NamedModel native = as_native(hf, {}, {});        // TorchTitan's names; fp8 dequantised to bfloat16
//   convert(native.checkpoint, "dcp_out", options);
//
// Nothing but indexes and `config.json` is read. Threads: any. Sources: spec conversion, choices.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "milepost/adapt/model_map.h"
#include "milepost/base/bytes.h"
#include "milepost/engine/checkpoint.h"
#include "milepost/engine/convert.h"
#include "milepost/flavor/flavor.h"
#include "milepost/storage/storage.h"

namespace milepost {

// What the caller knows of the model. What is not said is found out: from the `config.json` beside the
// source, else from names and shapes, where exactly one known flavor fits. A flavor also makes up for a
// config.json beside the source that cannot be read, and wins over one of other sizes; a note says so.
struct ModelChoice {
  std::optional<std::string> model, flavor;  // "deepseek_v3", "671B"
  std::optional<std::string> config;         // path of a config.json, or of a folder that holds one
  // The dimensions themselves, which then win over every config.json, in place of the three above.
  std::optional<flavor::Model> exact;
  // Multi-token prediction stages to take over; those beyond are left out. Default: as the flavor or the
  // config.json says, and more than that in the checkpoint is an error.
  std::optional<int64_t> mtp_layers;
  bool drop_unknown = false;  // leave out tensors that have no place in the model
};

struct NamedModel {
  std::shared_ptr<const Checkpoint> checkpoint;  // derived
  std::optional<flavor::Model> model;            // nullopt: native names of a model that was not recognised
  std::vector<adapt::LeftOut> left_out;
  std::vector<std::string> notes;
  bool dequantised = false;  // the source held fp8 or MXFP4 codes
  bool renamed = false;      // the source had the names of the other side
};

// `source` under native names. Codes are dequantised to `dtype`, by default bfloat16. A source that has
// native names already is taken as it is, and checked where its model is known. Throws ValueError (unknown or
// ambiguous model or flavor: names the candidates; kUnsupported names), what adapt/model_map.h throws, and
// FormatError for an unreadable config.json.
NamedModel as_native(const std::shared_ptr<const Checkpoint>& source, const ModelChoice& choice,
                     std::optional<DType> dtype);

// `source`, of either side's names, under Hugging Face's. `fp8`: weights as codes with scales.
NamedModel as_hugging_face(const std::shared_ptr<const Checkpoint>& source, const ModelChoice& choice,
                           std::optional<DType> dtype, bool fp8);

// The model that the caller names, for commands that have no checkpoint: a registry flavor, or what a
// config.json (`config` as in ModelChoice) says, which must be of `model`. Throws ValueError, StorageError,
// FormatError; requires one of the two.
flavor::Model named_model(const std::string& model, const std::optional<std::string>& flavor,
                          const std::optional<std::string>& config);
// Throws ValueError for a model without multi-token prediction.
void set_mtp_layers(flavor::Model* model, int64_t mtp_layers);

// A model of pseudo-random weights under Hugging Face's names, for synthetic checkpoints: nothing but `seed`
// and the tensor's place decide a value.
std::shared_ptr<const Checkpoint> synthetic_hugging_face(const flavor::Model& model, DType dtype, bool fp8,
                                                         uint64_t seed);

// Throws StorageError (kNotFound) unless `like` is a folder. add_hugging_face_files() does so as well; this
// tells before the model is looked for.
void require_like_folder(const std::string& like);

// What a Hugging Face folder holds beside the weights, for ConvertOptions: `config.json`, and from `like` (a
// Hugging Face folder) its tokenizer and generation files, its config.json set to what is written (see
// update_hf_config()), and which tensor goes into which file. Without `like`: a config.json that transformers
// loads. Throws StorageError, FormatError; ValueError when its config.json is of another model or other
// sizes.
void add_hugging_face_files(const NamedModel& exported, std::optional<DType> dtype, bool fp8,
                            const std::optional<std::string>& like, ConvertOptions* options);

// Writes what convert() would write of a synthetic checkpoint as safetensors, but with holes instead of
// values: files of the right sizes that take no space, for trying out plans. Options as convert()'s; dtype,
// to and resume are not looked at.
ConvertReport write_hollow(const std::shared_ptr<const Checkpoint>& source, std::string_view dst,
                           const ConvertOptions& options);

// The report of an import or export as JSON: every tensor of the source with what became of it, every tensor
// that was written with what it was made of. `options` are those that convert() gave `report` for. Streams to
// `sink`, so that its size does not count as memory.
void write_model_report(const std::shared_ptr<const Checkpoint>& source, const NamedModel& result,
                        const ConvertOptions& options, const ConvertReport& report, ByteSink& sink);

}  // namespace milepost
