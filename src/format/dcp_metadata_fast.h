// The fast reader of `.metadata`: for the shape that torch and our own writer give it.
#pragma once

#include <optional>

#include "milepost/format/dcp.h"

namespace milepost::dcp {

// What read_metadata_general() gives, field by field, or nullopt when the pickle is damaged or of an unusual
// shape; which of the two is for the general reader to find out. Throws only what `source` throws.
std::optional<Metadata> read_metadata_fast(const ByteSource& source);

}  // namespace milepost::dcp
