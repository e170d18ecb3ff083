// SimulatedDisk: a Storage in memory that remembers what had been synced, to rehearse power cuts.
//
// Content written but not sync()ed, and names made, renamed or removed but not followed by sync_directory() of their folder, may or may not survive a cut. `after_power_cut` gives the
// two extremes and random mixes between.
#pragma once

#include <cstdint>
#include <memory>

#include "milepost/storage/storage.h"

namespace milepost {

class SimulatedDisk : public Storage {
 public:
  // kDropUnsynced: only what was synced survives. kKeepAll: everything written survives (a process crash). kRandom: each unsynced effect survives or not by `seed`, renames of one
  // folder in order.
  enum class Survival { kDropUnsynced, kKeepAll, kRandom };
  // A new disk holding what survives a cut at this moment.
  virtual std::shared_ptr<SimulatedDisk> after_power_cut(Survival survival, uint64_t seed) const = 0;
};
std::shared_ptr<SimulatedDisk> simulated_disk();

}  // namespace milepost
