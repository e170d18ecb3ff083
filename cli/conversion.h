// What convert and reshard have in common: their flags, the run itself and its report.
#pragma once

#include <string>

#include "flags.h"
#include "milepost/engine/convert.h"
#include "terminal.h"

namespace milepost::cli {

struct Conversion {
  std::string source, destination;
  int64_t rank = -1, threads = 0, files = 0;
  bool no_sync = false;
  ConvertOptions options;

  void declare(Flags& flags);
  // Opens the source, writes the destination and prints what was done. Returns the exit status; throws what
  // convert() throws.
  int run(const Terminal& terminal, const std::string& label);
};

}  // namespace milepost::cli
