// Signals that ask a run to end: SIGINT (Ctrl-C), SIGTERM and SIGUSR1 (as batch systems send before the end
// of a job's time).
#pragma once

#include <string>

namespace milepost::train {

// From construction to destruction the first of these signals is noted, for the step loop to ask for. Another
// one, a second or more after it, ends the process at once, as without us; those within the second are taken
// for the same wish, since a launcher passes on what the terminal has sent already. At most one object at a
// time. SIGUSR1 alone does not count as a wish to end at once.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // The signal that came; 0 for none.
  static int received();
  // Blocks until a signal came, or wake() was called, since the last wait() returned. For one thread.
  static void wait();
  // Any thread may call it, even after the object is gone.
  static void wake();
  // "SIGTERM".
  static std::string name(int signal);
};

}  // namespace milepost::train
