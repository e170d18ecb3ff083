#include "flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>

#include "units.h"

namespace milepost::cli {
namespace {

// An option with exactly one value an occurrence, which `take` checks and stores; its exceptions are usage
// errors.
CLI::Option* option(CLI::App& app, const std::string& name, const std::string& metavar,
                    const std::string& help, std::function<void(const std::string&)> take) {
  CLI::Option* made = app.add_option(
      name,
      [name, take = std::move(take)](const CLI::results_t& values) {
        for (const std::string& value : values) take(value);
        return true;
      },
      help);
  return made->type_name(metavar)->type_size(1)->expected(1);
}

[[noreturn]] void refuse(const std::string& name, const std::string& what) {
  throw CLI::ValidationError(name, what);
}

}  // namespace

void Flags::positional(const std::string& name, std::string* value, const std::string& help) {
  option(app_, name, "", help, [value](const std::string& text) { *value = text; })->required();
}

void Flags::flag(const std::string& name, bool* value, const std::string& help) {
  app_.add_flag(name, *value, help);
}

void Flags::hidden_flag(const std::string& name, bool* value) { app_.add_flag(name, *value)->group(""); }

void Flags::text(const std::string& name, std::optional<std::string>* value, const std::string& metavar,
                 const std::string& help) {
  option(app_, name, metavar, help, [value](const std::string& text) { *value = text; });
}

void Flags::texts(const std::string& name, std::vector<std::string>* values, const std::string& metavar,
                  const std::string& help) {
  option(app_, name, metavar, help, [values](const std::string& text) { values->push_back(text); })
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->expected(1, CLI::detail::expected_max_vector_size)
      ->allow_extra_args(false);
}

void Flags::integer(const std::string& name, int64_t* value, int64_t min, int64_t max,
                    const std::string& help) {
  option(app_, name, "N", help, [=](const std::string& text) {
    int64_t parsed = 0;
    if (!CLI::detail::lexical_cast(text, parsed) || parsed < min || parsed > max) {
      refuse(name, fmt::format("'{}' is not a whole number from {} to {}", text, min, max));
    }
    *value = parsed;
  });
}

void Flags::number(const std::string& name, std::optional<double>* value, const std::string& help) {
  option(app_, name, "X", help, [=](const std::string& text) {
    double parsed = 0;
    if (!CLI::detail::lexical_cast(text, parsed) || !std::isfinite(parsed) || parsed < 0) {
      refuse(name, fmt::format("'{}' is not a number from 0 on", text));
    }
    *value = parsed;
  });
}

void Flags::bytes(const std::string& name, int64_t* value, int64_t min, const std::string& help) {
  option(app_, name, "SIZE", fmt::format("{} [{}]", help, bytes_flag_text(*value)),
         [=](const std::string& text) {
           const std::optional<int64_t> parsed = parse_bytes(text);
           if (!parsed) refuse(name, fmt::format("'{}' is not a size such as 5GB or 128MiB", text));
           if (*parsed < min)
             refuse(name, fmt::format("'{}' is too little: at least {}", text, bytes_flag_text(min)));
           *value = *parsed;
         });
}

void Flags::choice(const std::string& name, std::optional<size_t>* value,
                   const std::vector<std::string>& choices, bool required, const std::string& help) {
  std::string all;
  for (const std::string& choice : choices) all += (all.empty() ? "" : "|") + choice;
  option(app_, name, all, help, [=](const std::string& text) {
    const auto found = std::find(choices.begin(), choices.end(), text);
    if (found == choices.end()) refuse(name, fmt::format("'{}' is none of {}", text, all));
    *value = static_cast<size_t>(found - choices.begin());
  })->required(required);
}

}  // namespace milepost::cli
