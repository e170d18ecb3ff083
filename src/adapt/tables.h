// The tables, one file a model.
#pragma once

#include "milepost/adapt/key_table.h"

namespace milepost::adapt {

extern const KeyTable kLlama3Keys;
extern const KeyTable kDeepSeekV3Keys;

}  // namespace milepost::adapt
