// Normalizers: what happens to the text between added tokens before it is split.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "text/json_node.h"

namespace milepost::text {

// A text on its way through the normalizers.
struct NormalText {
  std::string text;
  bool keeps_start;  // whether its first character stems from the first one of the input
};

// Immutable; `apply` may be called from any thread.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual void apply(NormalText* text) const = 0;
  // Whether a text may be normalized in two parts, cut between a line feed and a letter or digit of ASCII.
  virtual bool is_local() const = 0;
};

// The normalizers of a tokenizer.json, sequences flattened, appended in the order in which they apply.
void read_normalizers(const JsonNode& node, std::vector<std::unique_ptr<Normalizer>>* normalizers);

}  // namespace milepost::text
