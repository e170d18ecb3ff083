// Configurations in files: JSON, as debug.save_config_file writes it, or TOML. A file holds sections and
// fields under their names, as many as it wants to set:
//
//   {"module": "llama3", "config": "llama3_debugmodel", "training": {"steps": 20}}
//
//   [checkpoint]
//   async_mode = "async"
//
// Names of the time when TorchTitan was configured by TOML are understood where they still mean something:
// `[job] dump_folder`, `[optimizer] lr`, `[activation_checkpoint] mode`, and so on (docs/configuration.md).
//
// Text in, values out: no file is opened here and no state is kept, so any thread may call anything.
#pragma once

#include <string>
#include <string_view>

#include "milepost/config/trainer.h"

namespace milepost::config {

// What a file says: which registry entry it starts from, when it says so, and its fields.
struct ConfigFile {
  std::string module, entry;  // empty: not said
  std::string fields_json;    // an object
};

// `path` names the file in errors and tells the format: .toml is TOML, all else JSON. Throws FormatError with
// path, key and offset for what is no such file, a key that occurs twice and nesting beyond 64.
ConfigFile parse_config_file(std::string_view path, std::string_view text);

// Sets what the file says and leaves the rest. Throws FormatError with path and key for an unknown key and a
// value of another type; the trainer may then be half set.
void apply_config_file(std::string_view path, const ConfigFile& file, Trainer* trainer);

// The whole configuration with its entry, as parse_config_file reads it: indented JSON without a line feed at
// the end. Reading it gives an equal configuration.
std::string config_file_text(const Trainer& trainer, std::string_view module, std::string_view entry);

// A Markdown table of every field, with type, default and help: docs/configuration.md.
std::string configuration_reference();

}  // namespace milepost::config
