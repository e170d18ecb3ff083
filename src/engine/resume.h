// Going on with an interrupted conversion, and leaving one behind: between StagedOutput, which keeps the
// files, and Journal, which knows what is in them.
#pragma once

#include <cstdint>
#include <string>

#include "engine/convert_plan.h"
#include "engine/journal.h"
#include "milepost/base/error.h"
#include "milepost/storage/staging.h"

namespace milepost {

// Makes ready what an interrupted conversion left: reads the journal and removes files that `output` does not
// have; where there is nothing usable, empties all and warns in the report. Returns the bytes that lie on the
// disk already. Throws ValueError kBadArgument (path) when another source, or other options, were converted
// there; then nothing is touched.
int64_t take_up(Storage& storage, StagedOutput& staged, bool single_file, const OutputSet& output,
                const std::string& path, Journal& journal, ConvertReport* report);

// Decides what becomes of the output of a conversion that ends with `error`: kept when it was interrupted (by
// the user, a full disk, the system) with enough written, or is a resumed one; then the error's hint says so.
void keep_or_remove(Storage& storage, StagedOutput& staged, Journal& journal, bool resumed, Error& error);

// Adds to the error's hint that an output was left in staging, if it was.
void mention_leftovers(Storage& storage, const StagedOutput& staged, Error& error);

}  // namespace milepost
