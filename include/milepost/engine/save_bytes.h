// What ranks tell each other during a save, as bytes: whoever carries them (collectives, files, sockets)
// needs not know what they are.
//
// The form is for processes of one job, not for files: native byte order, no version. Bytes of a peer are
// checked as those of a file are: a count or length that the bytes cannot hold is a FormatError.
#pragma once

#include <string>
#include <string_view>

#include "milepost/engine/save.h"
#include "milepost/plan/save_plan.h"

namespace milepost {

std::string encode_local_plan(const LocalPlan& plan);
// Throws FormatError (kTruncated, kBadFormat), and ValueError as LocalPlan::add_tensor does.
LocalPlan decode_local_plan(std::string_view bytes);

std::string encode_rank_result(const RankResult& result);
// Throws FormatError.
RankResult decode_rank_result(std::string_view bytes);

}  // namespace milepost
