// Flags: what a command accepts on its command line. The one place that knows the parsing library.
//
// A command declares where each value goes; main parses, and the values are there when the command runs.
// Every value is checked while parsing, so that a bad one is a usage error that names the flag.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace CLI {
class App;
}

namespace milepost::cli {

// All pointers must stay valid until parsing is done.
class Flags {
 public:
  explicit Flags(CLI::App& app) : app_(app) {}

  void positional(const std::string& name, std::string* value, const std::string& help);  // required
  void flag(const std::string& name, bool* value, const std::string& help);
  void hidden_flag(const std::string& name, bool* value);
  void text(const std::string& name, std::optional<std::string>* value, const std::string& metavar,
            const std::string& help);
  void texts(const std::string& name, std::vector<std::string>* values, const std::string& metavar,
             const std::string& help);  // may be given several times
  void integer(const std::string& name, int64_t* value, int64_t min, int64_t max, const std::string& help);
  void number(const std::string& name, std::optional<double>* value, const std::string& help);  // >= 0
  void bytes(const std::string& name, int64_t* value, int64_t min,
             const std::string& help);  // "5GB", "128MiB"
  // One of `choices`; `value` gets its index.
  void choice(const std::string& name, std::optional<size_t>* value, const std::vector<std::string>& choices,
              bool required, const std::string& help);

 private:
  CLI::App& app_;
};

}  // namespace milepost::cli
