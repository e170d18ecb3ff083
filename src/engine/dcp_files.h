// Data files of a DCP save: from a rank's share of a global plan to images and payloads, and back to
// locations for `.metadata`.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/write_images.h"
#include "milepost/engine/save.h"

namespace milepost {

// The files of one rank, ready to be written, and where each of its items will lie.
struct RankFiles {
  std::vector<OutputFile> files;
  RankResult result;
};

// `source` and `object_payloads` as prepare_payloads() left them.
RankFiles plan_rank_files(const GlobalPlan& plan, int64_t rank, const WriteOptions& options,
                          const PayloadSource& source, const std::vector<PayloadRef>& object_payloads);

// Prepares `source` for writing what `ranks` write: a view for every tensor of the plan (of the source's
// tensor of the same name), and for each object its stored archive or one made anew, by the plan's indexes;
// entries that these ranks do not write stay unset. Throws MissingKeyError when the source lacks one that
// they do, and FormatError (kUnsupported, key) for objects that cannot be encoded.
std::vector<PayloadRef> prepare_payloads(const GlobalPlan& plan, const std::vector<int64_t>& ranks,
                                         PayloadSource* source);

// A DCP object entry of `checkpoint` as an item: a range of a file, or made into source->owned.
PayloadRef object_payload(int64_t object, PayloadSource* source);

// Enters the places of all ranks' items into the plan's catalog.
void set_locations(GlobalPlan& plan, const std::vector<RankResult>& results);

}  // namespace milepost
