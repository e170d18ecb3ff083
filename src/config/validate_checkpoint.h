// The conditions on the sections `checkpoint` and `ema_weights`.
#pragma once

#include "milepost/config/validate.h"

namespace milepost::config {

void validate_checkpoint(Checkpoint& checkpoint, Warnings* warnings);
void validate_ema_weights(const EmaWeights& ema);

}  // namespace milepost::config
