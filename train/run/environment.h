// What the launcher says about this process through environment variables.
#pragma once

#include <cstdint>

namespace milepost::train {

// RANK, 0 when it is not set: which process of the run this is. Throws ValueError for what is no number.
int64_t rank();

// WORLD_SIZE, 1 when it is not set: how many processes the run has. Throws ValueError for what is no number
// above 0.
int64_t world_size();

// LOCAL_RANK, 0 when it is not set: which of this machine's processes this is. Throws ValueError for what is
// no number from 0.
int64_t local_rank();

// The number of ranks that one process stands for with comm.mode fake_backend: NGPU. Throws ValueError when
// NGPU is missing or no number above 0, and when RANK is no number of a rank.
int64_t fake_world_size();

}  // namespace milepost::train
