// How a command line is read, after TorchTitan:
//  1. --module, --config, --config-file, --dry-run, --count-tokens and --generate are taken out; the entry's
//  values are made and checked, and the file
//     is put on top.
//  2. The other words are read from left to right: flags with their values, one subcommand, its flags. A
//  choice
//     that is none and a flag without its value end it at once; words that belong to nothing are collected.
//  3. If there are such words, that is the error. Else values are set section by section, and each top-level
//     section is checked once it is set; last comes what spans sections.
// So the same wrong line gives the same error as there, whatever else is wrong with it.
#include "milepost/config/command_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "config/help.h"
#include "config/python_text.h"
#include "config/usage_errors.h"
#include "milepost/config/config_file.h"

namespace milepost::config {
namespace {

using Arguments = std::span<const std::string>;

// What is taken out of the line before anything else.
struct Source {
  std::optional<std::string> module, entry, config_file, generate;
  bool wants_help = false, wants_list = false, dry_run = false, count_tokens = false;
  std::vector<std::string> rest;
};

Source take_source(Arguments arguments) {
  Source source;
  const std::pair<std::string, std::optional<std::string>*> flags[] = {{"--module", &source.module},
                                                                       {"--config", &source.entry},
                                                                       {"--config-file", &source.config_file},
                                                                       {"--config_file", &source.config_file},
                                                                       {"--generate", &source.generate}};
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    bool taken = false;
    for (const auto& [flag, value] : flags) {
      if (word.starts_with(flag + "=")) {
        *value = word.substr(flag.size() + 1);
        taken = true;
      } else if (word == flag) {
        if (i + 1 == arguments.size()) throw LaunchError("ValueError", flag + " requires a value");
        *value = arguments[++i];
        taken = true;
      }
    }
    if (taken) continue;
    source.wants_help |= word == "-h" || word == "--help";
    source.wants_list |= with_hyphens(word) == "--list-configs";
    if (with_hyphens(word) == "--dry-run") {
      source.dry_run = true;
      continue;
    }
    if (with_hyphens(word) == "--count-tokens") {
      source.count_tokens = true;
      continue;
    }
    source.rest.push_back(word);
  }
  return source;
}

// The registry's values with the file's on top.
void make_base(const Source& source, const Machine& machine, const ReadFile& read_file, Launch* launch) {
  std::string module = source.module.value_or(""), entry_name = source.entry.value_or("");
  ConfigFile file;
  if (source.config_file) {
    file = parse_config_file(*source.config_file, read_file(*source.config_file));
    if (!source.module) module = file.module;
    if (!source.entry) entry_name = file.entry;
  }
  for (const auto& [flag, value] : {std::pair("--module", &module), {"--config", &entry_name}}) {
    if (!value->empty() || (flag == std::string_view("--module") ? source.module : source.entry)) continue;
    throw LaunchError(
        "ValueError",
        fmt::format("{} is required. Example: --module llama3 --config llama3_debugmodel", flag));
  }
  const Entry& entry = find_entry(module, entry_name);
  launch->module = entry.module;
  launch->entry = entry.name;
  launch->trainer = entry.make();
  try {
    validate(launch->trainer, machine);
  } catch (const ValueError& error) {
    throw LaunchError("ValueError", error.summary());
  }
  if (source.config_file) apply_config_file(*source.config_file, file, &launch->trainer);
}

bool is_number(const std::string& word) {
  try {
    parse_float(word);
    return true;
  } catch (const ValueError&) {
    return false;
  }
}

class Words {
 public:
  Words(Arguments arguments, Trainer& trainer) : arguments_(arguments), trainer_(trainer) { index_flags(); }

  // True when help was asked for.
  bool read() {
    while (next_ < arguments_.size()) {
      const std::string& word = arguments_[next_++];
      if (word == "-h" || word == "--help") return true;
      if (!take_subcommand(word) && !take_flag(word)) unknown_.push_back({word, subcommand_});
    }
    return false;
  }

  const std::string& subcommand() const { return subcommand_; }
  const std::vector<UnknownWord>& unknown() const { return unknown_; }
  // The words given for an option; nullptr when it was not given.
  const std::vector<std::string>* given(const std::string& path) const {
    const auto found = given_.find(path);
    return found == given_.end() ? nullptr : &found->second;
  }

 private:
  struct Flag {
    Option option;
    bool is_negation = false;
  };

  // Flags before the subcommand are the global ones, after it only its own.
  void index_flags() {
    flags_.clear();
    for (const Section& section : option_tree(trainer_)) {
      if (is_subcommand(section) == subcommand_.empty()) continue;
      for (const Option& option : section.options) {
        if (!option.on_command_line()) continue;
        flags_[option.flag()] = {option, false};
        if (option.is_bool()) flags_[option.no_flag()] = {option, true};
      }
    }
  }

  static std::optional<size_t> policy_named(const std::string& word) {
    const std::vector<std::string> names = subcommand_names();
    const auto found = std::find(names.begin(), names.end(), with_hyphens(word));
    if (found == names.end()) return std::nullopt;
    return static_cast<size_t>(found - names.begin());
  }

  bool take_subcommand(const std::string& word) {
    const std::optional<size_t> policy = policy_named(word);
    if (!policy || !subcommand_.empty()) return false;
    if (*policy != trainer_.activation_checkpoint.index()) {
      const ActivationCheckpoint policies[] = {SelectiveAc{}, FullAc{}, MemoryBudgetAc{}, NoAc{}};
      trainer_.activation_checkpoint = policies[*policy];
    }
    subcommand_ = subcommand_names()[*policy];
    index_flags();
    return true;
  }

  bool take_flag(const std::string& word) {
    if (!word.starts_with("--")) return false;
    const size_t equals = word.find('=');
    const auto found = flags_.find(with_hyphens(word.substr(0, equals)));
    if (found == flags_.end()) return false;
    const Flag& flag = found->second;
    std::vector<std::string> words;
    if (flag.option.is_bool()) {
      // A bool takes no value, so one behind '=' belongs to nothing.
      if (equals != word.npos) unknown_.push_back({word.substr(equals + 1), subcommand_});
      words = {flag.is_negation ? "False" : "True"};
    } else {
      if (equals != word.npos) words.push_back(word.substr(equals + 1));
      take_values(flag.option, &words);
    }
    given_[flag.option.path] = std::move(words);
    return true;
  }

  void take_values(const Option& option, std::vector<std::string>* words) {
    const bool any = option.type->words == ValueType::Words::kAny;
    const size_t wanted = option.type->words == ValueType::Words::kTwo ? 2 : 1;
    while (next_ < arguments_.size() && (any || words->size() < wanted) && is_value(arguments_[next_], any)) {
      words->push_back(arguments_[next_++]);
    }
    if (!any && words->size() < wanted) throw missing_value(option, wanted);
    const auto& choices = option.type->choices;
    if (!choices.empty() && std::find(choices.begin(), choices.end(), (*words)[0]) == choices.end()) {
      throw invalid_choice(option, (*words)[0]);
    }
  }

  bool is_value(const std::string& word, bool any) const {
    if (any && subcommand_.empty() && policy_named(word)) return false;
    return !word.starts_with('-') || word == "-" || is_number(word);
  }

  Arguments arguments_;
  Trainer& trainer_;
  size_t next_ = 0;
  std::string subcommand_;
  std::map<std::string, Flag> flags_;
  std::map<std::string, std::vector<std::string>> given_;
  std::vector<UnknownWord> unknown_;
};

void set_option(const Option& option, const std::vector<std::string>& words) {
  try {
    option.type->parse(words, option.value);
  } catch (const ValueError& error) {
    throw bad_value(option, error.summary());
  }
}

void set_and_validate(const Words& words, const Machine& machine, Launch* launch) {
  const std::vector<Section> sections = option_tree(launch->trainer);
  const auto top_level = [](const Section& section) {
    return section.path.substr(0, section.path.find('.'));
  };
  try {
    for (size_t i = 0; i < sections.size(); ++i) {
      for (const Option& option : sections[i].options) {
        if (const auto* given = words.given(option.path)) set_option(option, *given);
      }
      const bool last = i + 1 == sections.size() || top_level(sections[i + 1]) != top_level(sections[i]);
      if (last) validate_section(launch->trainer, top_level(sections[i]), machine, &launch->warnings);
    }
    validate_together(launch->trainer, machine);
  } catch (const UsageError&) {
    throw;
  } catch (const ValueError& error) {
    throw bad_section(error.key(), error.summary());
  }
}

}  // namespace

Launch parse_command_line(std::span<const std::string> arguments, const Machine& machine,
                          const ReadFile& read_file) {
  const Source source = take_source(arguments);
  Launch launch;
  const auto print = [&](std::string text) {
    launch.action = Launch::Action::kPrintText;
    launch.text = std::move(text);
    return launch;
  };
  if (source.wants_list) return print(list_configs_text());
  const bool names_nothing = !source.module && !source.entry && !source.config_file;
  if (source.wants_help && names_nothing) return print(general_help_text());

  make_base(source, machine, read_file, &launch);
  Trainer defaults = launch.trainer;
  Words words(source.rest, launch.trainer);
  if (words.read()) {
    return print(words.subcommand().empty() ? help_text(launch.trainer)
                                            : subcommand_help_text(launch.trainer));
  }
  if (!words.unknown().empty()) throw unknown_words(words.unknown(), words.subcommand(), defaults);
  set_and_validate(words, machine, &launch);
  if (source.count_tokens) launch.action = Launch::Action::kCountTokens;
  if (source.generate) {
    launch.action = Launch::Action::kGenerate;
    launch.text = *source.generate;
  }
  if (source.dry_run) launch.action = Launch::Action::kDryRun;
  return launch;
}

}  // namespace milepost::config
