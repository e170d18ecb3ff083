// What convert, reshard, import, export and synth have in common: their flags, the run itself and its report.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "flags.h"
#include "milepost/engine/convert.h"
#include "terminal.h"

namespace milepost::cli {

struct Conversion {
  std::string source, destination;
  int64_t rank = -1, threads = 0, files = 0;
  bool no_sync = false;
  ConvertOptions options;

  bool may_write_dcp = true;  // whether there is a --files
  bool hollow = false;        // write_hollow() rather than convert()

  // Of import and export: shown before what was written.
  std::string model;  // "deepseek_v3 671B"
  std::vector<std::string> notes;
  std::vector<std::string> left_out;                           // "name: why"
  std::function<void(const ConvertReport&)> after_converting;  // writes the report file

  void declare(Flags& flags);          // SRC, DST and the options
  void declare_options(Flags& flags);  // the options alone
  // Opens the source, writes the destination and prints what was done. Returns the exit status; throws what
  // convert() throws.
  int run(const Terminal& terminal, const std::string& label);
  // The same for a checkpoint that is open. Call take_options() before looking at `options`.
  int run(const Terminal& terminal, const std::string& label,
          const std::shared_ptr<const Checkpoint>& checkpoint);
  void take_options();  // what flags left in other members goes into `options`
};

}  // namespace milepost::cli
