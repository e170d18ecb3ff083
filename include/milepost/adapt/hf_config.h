// Hugging Face's `config.json` for the models that have key maps: read into a flavor, and written from one.
//
// Fields are those that transformers 4.57 reads and writes (spec choices, "config.json on export"). Pure
// functions on text; any thread. The text is untrusted: sizes are checked, unknown fields ignored.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "milepost/flavor/flavor.h"
#include "milepost/tensor/dtype.h"

namespace milepost::adapt {

struct HfConfig {
  flavor::Model model;         // with its registry name where all dimensions are equal to an entry's
  std::optional<DType> dtype;  // torch_dtype (or dtype, as later versions call it)
  bool quantised_fp8 = false;  // quantization_config.quant_method == "fp8"
  int64_t quantised_block[2] = {128, 128};  // weight_block_size
};

// `model_type` llama -> llama3; deepseek_v3 and deepseek_v2 -> deepseek_v3. Throws FormatError (path: the
// given one; key: the field) for text that is no JSON object, a field that is missing, of the wrong type or
// out of range, attention or MLP biases and other settings that the models here do not have; ValueError for
// another model_type, naming those that are known.
HfConfig read_hf_config(std::string_view text, std::string_view path);

// What transformers' `AutoModelForCausalLM.from_pretrained` loads. `fp8`: with a quantization_config.
std::string write_hf_config(const flavor::Model& model, DType torch_dtype, bool fp8);

// `text` (an original config.json) with `torch_dtype` and `quantization_config` set to what was written (the
// latter removed without fp8), all else and the order of keys kept. Throws FormatError as above.
std::string update_hf_config(std::string_view text, std::string_view path, DType torch_dtype, bool fp8);

}  // namespace milepost::adapt
