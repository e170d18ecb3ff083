// Sizes of tensors that are to be written.
#pragma once

#include <cstdint>

#include "milepost/format/safetensors.h"

namespace milepost::safetensors {

// Throws FormatError kTooLarge (key) when the shape has no size in whole bytes.
int64_t payload_bytes(const OutTensor& tensor);

}  // namespace milepost::safetensors
