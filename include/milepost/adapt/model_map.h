// Model maps: key tables applied to what a checkpoint really holds. A checkpoint goes through a chain of
// KeyMaps; none of them touches data.
//
//   import:  dequantised_map (when there are fp8 or MXFP4 codes) -> import_map
//   export:  export_map -> fp8_map (when fp8 is asked for)
//
// All check for totality before anything is returned: every tensor that the model has must be there, and
// every tensor that is there must have a place or be left out for a stated reason. `tensors` are the indexes
// of the catalog's tensors to look at, in order (those of the model, where the checkpoint holds more).
//
// Pure; any thread. Cost: about 1 us a name.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "milepost/adapt/key_table.h"
#include "milepost/catalog/key_map.h"
#include "milepost/flavor/flavor.h"

namespace milepost::adapt {

// By whose names a checkpoint calls its tensors.
enum class Naming : uint8_t { kNative, kHuggingFace, kUnknown };
Naming find_naming(const Catalog& catalog, std::span<const int64_t> tensors);

struct LeftOut {
  std::string name;  // a tensor of the source
  std::string why;
};

struct ModelMap {
  KeyMap map;
  std::vector<LeftOut> left_out;
  std::vector<std::string> notes;  // what a person should know: tensors filled with zeros, ...
};

struct MapOptions {
  bool drop_unknown = false;    // leave out tensors that have no place, rather than refuse
  bool drop_extra_mtp = false;  // leave out multi-token prediction stages beyond the model's
};

// Hugging Face's names to native ones. Throws MissingKeyError with the list of what the model has and the
// source lacks (or their number, for a model far larger than the source); ShapeMismatchError (key) for the
// first tensor, in the model's order, of another shape; ValueError for multi-token prediction stages beyond
// the model's; FormatError kUnsupported with the list of tensors that have no place, and (key) for dtypes
// that cannot be rearranged: 6-bit ones, and integers among the floating matrices of a stack. Floating
// matrices of several dtypes make a float32 stack, or a float64 one where one of them is.
ModelMap import_map(const Catalog& source, std::span<const int64_t> tensors, const flavor::Model& model,
                    const MapOptions& options);
// Native names to Hugging Face's; errors as above.
ModelMap export_map(const Catalog& source, std::span<const int64_t> tensors, const flavor::Model& model,
                    const MapOptions& options);
// Native names stay; checked against the model in the same way.
ModelMap native_map(const Catalog& source, std::span<const int64_t> tensors, const flavor::Model& model,
                    const MapOptions& options);

// Whether there are codes that need the scales stored beside them: `X` (fp8) with `X_scale_inv`, or
// `X_blocks` with `X_scales`.
bool has_quantised(const Catalog& catalog, std::span<const int64_t> tensors);

// Names as they are, codes replaced by their values as `dtype` (spec dcp-format, section 9): float32,
// bfloat16 or float16. `block`: rows and columns of a block. Throws MissingKeyError for fp8 codes without
// scales, ShapeMismatchError (key) for scales that do not fit, FormatError kUnsupported for codes that are no
// matrix, scales that are codes or integers, or blocks that are not square.
ModelMap dequantised_map(const Catalog& source, std::span<const int64_t> tensors, DType dtype,
                         std::array<int64_t, 2> block);

// Over the target of an export: the weights whose rows say `fp8` become codes, and their scales follow them
// as `X_scale_inv` (spec choices, "fp8 export"). Other floating tensors become `dtype`, but those whose rows
// say `is_float32`, which become that.
KeyMap fp8_map(const Catalog& exported, const flavor::Model& model, DType dtype);

// The number of multi-token prediction stages that the names show: those from `n_layers` on, or under
// native names.
int64_t count_mtp_stages(const Catalog& catalog, std::span<const int64_t> tensors, const flavor::Model& model,
                         Naming naming);

// Which of `candidates` (flavor::all(), as a rule) fit names and shapes exactly, multi-token prediction
// stages counted from the names.
struct Fit {
  std::vector<flavor::Model> exact;
  std::string closest;  // when none fits: the nearest one, and where it differs first
};
Fit find_fitting(const Catalog& catalog, std::span<const int64_t> tensors, Naming naming,
                 std::span<const flavor::Model> candidates);

}  // namespace milepost::adapt
