#include "config/usage_errors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "config/help.h"
#include "config/nearest.h"
#include "config/python_text.h"

namespace milepost::config {
namespace {

constexpr size_t kMostSimilar = 3;
constexpr double kSimilar = 0.7;

void add_last_line(std::string_view verb, Box* box) {
  box->add_rule();
  box->add(fmt::format("For full helptext, {} {} --help", verb, kProgram));
}

UsageError with_box(std::string_view title, const std::string& text, std::string_view verb) {
  Box box{std::string(title)};
  box.add(text);
  add_last_line(verb, &box);
  return {text, box.text(/*full_width=*/false)};
}

// A flag that may have been meant, and under which commands it is known.
struct Candidate {
  std::string flag, no_flag, heading, help;
  std::vector<std::string> commands;
  double likeness = 0;
};

void add_candidates(Trainer& trainer, bool of_subcommand, const std::string& command,
                    std::vector<Candidate>* candidates) {
  for (const Section& section : option_tree(trainer)) {
    if (is_subcommand(section) != of_subcommand) continue;
    for (const Option& option : section.options) {
      if (!option.on_command_line()) continue;
      const auto same = std::find_if(candidates->begin(), candidates->end(),
                                     [&](const Candidate& c) { return c.flag == option.flag(); });
      if (same != candidates->end()) {
        same->commands.push_back(command);
        continue;
      }
      candidates->push_back({option.flag(),
                             option.is_bool() ? option.no_flag() : "",
                             option_heading(option),
                             option_help(option),
                             {command}});
    }
  }
}

std::vector<Candidate> all_candidates(Trainer& defaults) {
  std::vector<Candidate> candidates;
  add_candidates(defaults, /*of_subcommand=*/false, std::string(kProgram), &candidates);
  const ActivationCheckpoint policies[] = {SelectiveAc{}, FullAc{}, MemoryBudgetAc{}};
  for (const ActivationCheckpoint& policy : policies) {
    Trainer trainer;
    trainer.activation_checkpoint = policy;
    add_candidates(trainer, /*of_subcommand=*/true,
                   fmt::format("{} {}", kProgram, subcommand_names()[policy.index()]), &candidates);
  }
  return candidates;
}

// The whole name counts, or the last word where it was given without its section, or with another one.
double likeness_of(const std::string& wanted, const std::string& flag) {
  if (flag.empty()) return 0;
  const double whole = likeness(wanted, flag);
  const std::string last = flag.substr(flag.rfind('.') == flag.npos ? 2 : flag.rfind('.') + 1);
  const size_t dot = wanted.rfind('.');
  const std::string wanted_last = wanted.substr(dot == wanted.npos ? 2 : dot + 1);
  const bool same_section = wanted.substr(0, wanted.find('.')) == flag.substr(0, flag.find('.'));
  const double weight = dot == wanted.npos ? 0.95 : (same_section ? 0.92 : 0.8);
  return std::max(whole, weight * likeness(wanted_last, last));
}

std::vector<Candidate> similar(const std::string& word, std::vector<Candidate> candidates) {
  std::string wanted = with_hyphens(word.substr(0, word.find('=')));
  for (char& c : wanted) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (Candidate& candidate : candidates) {
    candidate.likeness =
        std::max(likeness_of(wanted, candidate.flag), likeness_of(wanted, candidate.no_flag));
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.likeness > b.likeness; });
  const double enough = std::max(kSimilar, candidates.front().likeness - 0.15);
  size_t count = 0;
  while (count < std::min(kMostSimilar, candidates.size()) && candidates[count].likeness >= enough) ++count;
  candidates.resize(count);
  return candidates;
}

void add_similar(const std::string& title, const std::vector<Candidate>& candidates, Box* box) {
  box->add_rule();
  box->add(title);
  for (const Candidate& candidate : candidates) {
    box->add(candidate.heading, 4);
    box->add(candidate.help, 8);
    for (const std::string& command : candidate.commands) box->add(fmt::format("in {} --help", command), 8);
  }
}

// Flags that exist elsewhere on the line are called misplaced.
bool is_misplaced(const std::vector<UnknownWord>& words, const std::vector<Candidate>& candidates) {
  return std::any_of(words.begin(), words.end(), [&](const UnknownWord& word) {
    const std::string flag = with_hyphens(word.text.substr(0, word.text.find('=')));
    return std::any_of(candidates.begin(), candidates.end(), [&](const Candidate& c) {
      return c.flag == flag || (!flag.empty() && c.no_flag == flag);
    });
  });
}

std::string list_of(const std::vector<UnknownWord>& words) {
  std::vector<std::string> texts;
  for (const UnknownWord& word : words) texts.push_back(word.text);
  return fmt::format("Unrecognized options: {}", fmt::join(texts, ", "));
}

void add_words(const std::vector<UnknownWord>& words, bool misplaced, Box* box) {
  if (!misplaced) return box->add(list_of(words));
  box->add("Unrecognized or misplaced options:");
  for (const UnknownWord& word : words) {
    const std::string space = word.subcommand.empty() ? "" : " ";
    box->add(fmt::format("{} (applied to {}{}{})", word.text, kProgram, space, word.subcommand), 2);
  }
  box->add("");
  box->add("Arguments are applied to the directly preceding subcommand, so ordering can matter.");
}

}  // namespace

UsageError missing_value(const Option& option, size_t wanted) {
  return with_box("Missing argument",
                  fmt::format("Missing value for argument '{}'. Expected {} values.", option.flag(), wanted),
                  "run");
}

UsageError invalid_choice(const Option& option, const std::string& given) {
  std::vector<std::string> choices;
  for (std::string_view choice : option.type->choices) choices.push_back(string_repr(choice));
  return with_box(
      "Invalid choice",
      fmt::format("invalid choice {} for argument '{}'. Expected one of ({}{}).", string_repr(given),
                  option.flag(), fmt::join(choices, ", "), choices.size() == 1 ? "," : ""),
      "run");
}

UsageError bad_value(const Option& option, const std::string& why) {
  const std::string text = fmt::format("Error parsing {}: {}", option.flag(), why);
  Box box("Value error");
  box.add(text);
  box.add_rule();
  box.add("Argument helptext:");
  box.add(option_heading(option), 4);
  box.add(option_help(option), 4);
  add_last_line("see", &box);
  return {text, box.text(/*full_width=*/false)};
}

UsageError bad_section(const std::string& section, const std::string& why) {
  return with_box("Value error", fmt::format("Error parsing {}: {}", with_hyphens(section), why), "see");
}

UsageError unknown_words(const std::vector<UnknownWord>& words, const std::string& subcommand,
                         Trainer& defaults) {
  const std::vector<Candidate> candidates = all_candidates(defaults);
  Box box("Unrecognized options");
  add_words(words, is_misplaced(words, candidates), &box);
  if (subcommand.empty()) {
    box.add_rule();
    box.add(fmt::format("Available subcommands: {}", fmt::join(subcommand_names(), ", ")));
  }
  const auto is_flag = [](const UnknownWord& word) { return word.text.starts_with("--"); };
  const auto flags = std::count_if(words.begin(), words.end(), is_flag);
  for (const UnknownWord& word : words) {
    if (!is_flag(word)) continue;
    const std::vector<Candidate> found = similar(word.text, candidates);
    if (found.empty()) continue;
    add_similar(flags == 1 ? "Perhaps you meant:" : fmt::format("Arguments similar to {}:", word.text), found,
                &box);
  }
  add_last_line("run", &box);
  return {list_of(words), box.text(/*full_width=*/false)};
}

}  // namespace milepost::config
