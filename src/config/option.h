// A configuration seen as flags: sections of options, each of which knows its name, its help and how its
// value is read and shown. Made from the declarations by option_tree.h; help, command line and reference work
// on it.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "milepost/config/trainer.h"

namespace milepost::config {

// What the type of a value says about its flag. One static record a type.
struct ValueType {
  enum class Words : uint8_t {
    kNone,
    kOne,
    kTwo,
    kAny
  };  // that follow the flag; kNone: a bool's pair of flags
  Words words = Words::kOne;
  std::string metavar;                             // "INT", "{None}|STR", "{linear,sqrt}"
  std::span<const std::string_view> choices = {};  // empty: not a choice
  // Sets the value from the words; throws ValueError that says why not. A bool gets "True" or "False".
  void (*parse)(std::span<const std::string> words, void* value) = nullptr;
  std::string (*text)(const void* value) = nullptr;  // as help shows a default
};

struct Option {
  std::string path;  // "training.local_batch_size"
  Note note;
  const ValueType* type = nullptr;
  void* value = nullptr;  // in the configuration that the tree was made of

  std::string flag() const;     // "--training.local-batch-size"
  std::string no_flag() const;  // "--checkpoint.no-enable", for a bool
  bool is_bool() const { return type->words == ValueType::Words::kNone; }
  bool on_command_line() const { return (note.marks & kFileOnly) == 0; }
};

struct Section {
  std::string path;  // "" for the root
  std::string_view help;
  std::vector<Option> options;
};

// The sections of a configuration, each before those in it. Points into `trainer`, and holds until the
// trainer, one of its lists or a choice of alternatives is changed.
std::vector<Section> option_tree(Trainer& trainer);

// "activation_checkpoint" is a subcommand, not a section of flags.
inline constexpr std::string_view kSubcommand = "activation_checkpoint";
inline bool is_subcommand(const Section& section) { return section.path == kSubcommand; }

// `text` with '_' as '-'.
std::string with_hyphens(std::string_view text);

}  // namespace milepost::config
