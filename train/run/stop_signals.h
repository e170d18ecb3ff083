// Signals that ask a run to end: SIGINT (Ctrl-C), SIGTERM and SIGUSR1 (as batch systems send before the end
// of a job's time).
#pragma once

#include <cstdint>
#include <string>

namespace milepost::train {

// Whether `signal`, coming `after_ms` after the first one, asks to end at once. Launchers send the same wish
// again: the terminal's SIGINT reaches the ranks and their agent, which passes it on within the second; a
// batch system signals all processes of a job, and the agent then sends SIGTERM to ranks that save already,
// up to 5 seconds later. SIGUSR1 never asks for it. Safe in a signal handler.
bool ends_at_once(int signal, int64_t after_ms);

// From construction to destruction the first of these signals is noted, for the step loop to ask for. A later
// one of which ends_at_once() holds ends the process, as without us. At most one object at a time.
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
