// What `milepost inspect` reads beyond the index, when asked: values, statistics, hashes.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "inspection.h"
#include "json.h"
#include "milepost/engine/scan.h"
#include "terminal.h"

namespace milepost::cli {

struct WantedDetails {
  bool chunks = false, stats = false, sha256 = false, values = false;
};

// By position among the listed entries; empty where nothing was asked for or the entry is of the other kind.
struct Details {
  std::vector<std::optional<TensorStats>> stats;
  std::vector<std::string> sha256;
  std::vector<std::string> values;          // JSON text of objects
  std::vector<std::optional<Json>> errors;  // why a value could not be read
  bool complete = true;                     // false: some value could not be read
};

Details read_details(const Terminal& terminal, const std::shared_ptr<const Checkpoint>& checkpoint,
                     const std::vector<Entry>& entries, const WantedDetails& wanted);

// The object's value in the notation of pickle::to_json, with the hashes of tensors inside it when
// `hash_tensors`. Throws FormatError with the entry's name as key.
std::string object_json(const Checkpoint& checkpoint, int64_t object, bool nested_pickles, bool hash_tensors);

// The first values of a tensor: at most 6 x 6 of its last two dimensions, index 0 in the others.
struct Corner {
  std::vector<std::vector<std::string>> rows;  // element_text
  bool cut_right = false, cut_below = false;
};
// Throws FormatError kUnsupported for types that pack values, and what TensorReader throws.
Corner read_corner(const std::shared_ptr<const Checkpoint>& checkpoint, int64_t tensor);

}  // namespace milepost::cli
