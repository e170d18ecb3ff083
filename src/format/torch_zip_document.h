// The pickle of an archive as a value tree.
#pragma once

#include <string>

#include "format/torch_zip_archive.h"
#include "milepost/base/bytes.h"
#include "milepost/format/pickle.h"

namespace milepost::torch_zip {

// Reads `bytes`, the archive's data.pkl. Errors have offsets in the archive.
pickle::Document read_document(Archive& archive, Bytes bytes, bool keep_unknown_globals);

// For messages: "a list", "an object of class 'my.module Net'".
std::string describe(const pickle::Value& value);

}  // namespace milepost::torch_zip
