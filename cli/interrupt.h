// Interrupt: while one exists, Ctrl-C and SIGTERM ask the operation to stop and clean up instead of ending
// the process.
#pragma once

#include "milepost/base/progress.h"

namespace milepost::cli {

// Sets progress.cancel on SIGINT or SIGTERM; a second signal ends the process at once, as by default. At most
// one at a time.
class Interrupt {
 public:
  explicit Interrupt(Progress& progress);
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  // The signal that came while any Interrupt existed; 0 for none.
  static int signal_received();
};

}  // namespace milepost::cli
