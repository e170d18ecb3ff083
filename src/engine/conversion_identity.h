// What tells one conversion from another, for continuing an interrupted one.
#pragma once

#include <span>
#include <vector>

#include "engine/convert_plan.h"
#include "engine/journal.h"

namespace milepost {

// Of the conversion of `source` into `output`, whose small files hold `small_files` (hashed already). Covers
// the last component of the source's path, its files' names, sizes and times (those of the checkpoint that it
// is derived from, if it is), where its tensors lie or how they are made, and every byte of the output that
// does not come from the source; not how the work is shared out (threads, memory, sync). For a checkpoint in
// memory there are no times: the caller vouches for the content.
//
// Cost: a stat a source file, some 100 bytes hashed a chunk. Never throws for a file that cannot be looked
// at.
ConversionIdentity identify_conversion(const Checkpoint& source, const OutputSet& output,
                                       CheckpointFormat format, std::span<const Sha256Digest> small_files);

}  // namespace milepost
