// Decoders: from the spelling of tokens back to text.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "text/json_node.h"

namespace milepost::text {

// Immutable; any thread.
class Decoder {
 public:
  virtual ~Decoder() = default;
  // The strings whose concatenation is the text.
  virtual void apply(std::vector<std::string>* tokens) const = 0;
};

// The decoders of a tokenizer.json, sequences flattened, appended in the order in which they apply.
void read_decoders(const JsonNode& node, std::vector<std::unique_ptr<Decoder>>* decoders);

}  // namespace milepost::text
