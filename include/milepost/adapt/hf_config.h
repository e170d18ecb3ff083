// Hugging Face's `config.json` for the models that have key maps: read into a flavor, and written from one.
//
// Fields are those that transformers 4.57 reads and writes (spec choices, "config.json on export"); what
// transformers 5 writes (`dtype`, `rope_parameters`) is read too. Pure functions on text; any thread.
//
// The text is untrusted. Unknown fields are ignored. Refused with FormatError: more than 16 MiB, 32 levels,
// 10000 names or a million values; a name that occurs twice in an object; numbers beyond any model's (a plan
// of the model always fits in memory: at most 2^20 experts in all its layers, 2^56 parameters).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "milepost/flavor/flavor.h"
#include "milepost/tensor/dtype.h"

namespace milepost::adapt {

struct HfConfig {
  flavor::Model model;                      // named where find_equal() has an entry; dims are the file's
  std::optional<DType> dtype;               // torch_dtype (or dtype, as later versions call it)
  bool quantised_fp8 = false;               // quantization_config.quant_method == "fp8"
  int64_t quantised_block[2] = {128, 128};  // weight_block_size
};

// `model_type` llama -> llama3; deepseek_v3 and deepseek_v2 -> deepseek_v3. An absent field has the default
// of transformers' class: deepseek_v3 routes by sigmoid, deepseek_v2 by softmax. A single expert group, or
// any with `topk_method` greedy, reads as no groups.
//
// Throws FormatError (path: the given one; key: the field, "rope_scaling.factor") for text that is no JSON
// object, a field that is missing, of the wrong type or out of range, and for settings that the models here
// do not have (kUnsupported): biases, another activation, RoPE scaling other than llama3 and YaRN, YaRN that
// scales cos and sin. ValueError for another model_type, naming those that are known.
HfConfig read_hf_config(std::string_view text, std::string_view path);

// What transformers' `AutoModelForCausalLM.from_pretrained` loads, with RoPE and softmax scaled as TorchTitan
// scales them; read_hf_config gives the same `dims` back. Softmax routing is written as such although
// transformers' deepseek_v3 computes sigmoid all the same: tell the user. `bos_token_id` and `eos_token_id`
// are those of the releases with that vocabulary, else null. `fp8`: with a quantization_config of 128 x 128
// blocks. Requires a model whose dimensions are those of a config (positive, with groups that divide).
std::string write_hf_config(const flavor::Model& model, DType torch_dtype, bool fp8);

// `text` (an original config.json) set to what was written: its dtype (under the name that it uses:
// `torch_dtype`, `dtype` or both), `quantization_config`, removed without fp8, and the two fields that say
// which tensors there are, `tie_word_embeddings` and `num_nextn_predict_layers`, to those of `model`, if it
// is known. All else and the order of fields are kept, numbers by value. Throws FormatError for bad JSON as
// above.
std::string update_hf_config(std::string_view text, std::string_view path,
                             const std::optional<flavor::Model>& model, DType torch_dtype, bool fp8);

}  // namespace milepost::adapt
