// A configuration as a JSON document, and back.
#pragma once

#include <nlohmann/json.hpp>

#include "config/value_types.h"
#include "milepost/config/trainer.h"

namespace milepost::config {

// Every field, the model's dimensions included. read_json of it gives an equal configuration.
Json to_json(const Trainer& trainer);

// Sets the fields that `json` holds and leaves the others. Throws FormatError with the key's path for an
// unknown key (with the nearest one there is), a value of another type or a flavor that does not exist; the
// trainer may then be half set.
void read_json(const Json& json, Trainer* trainer);

}  // namespace milepost::config
