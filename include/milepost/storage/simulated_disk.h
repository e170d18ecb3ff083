// SimulatedDisk: a Storage in memory that remembers what had been synced, to rehearse power cuts.
//
// What may or may not survive a cut:
// - content written, cut or extended since the file's last sync(), page by page, and the size apart;
// - names made, renamed or removed since the last sync_directory() of their folder. A rename or exchange over
//   two folders survives as a whole or not at all, and syncing either folder makes it durable together with
//   all earlier changes of both, as journaling file systems do.
#pragma once

#include <cstdint>
#include <memory>

#include "milepost/storage/storage.h"

namespace milepost {

class SimulatedDisk : public Storage {
 public:
  enum class Survival {
    kDropUnsynced,  // only what was synced survives
    kKeepAll,       // everything written survives: a crash of the process, not of the machine
    kRandom,        // each unsynced effect survives or not by `seed`, changes of one folder in order
  };
  // A new disk holding what survives a cut at this moment. Locks do not. This one goes on unchanged.
  virtual std::shared_ptr<SimulatedDisk> after_power_cut(Survival survival, uint64_t seed) const = 0;
};

// Empty but for the folder "/".
std::shared_ptr<SimulatedDisk> simulated_disk();

}  // namespace milepost
