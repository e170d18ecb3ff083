// Command lines for tests.
#pragma once

#include <string>
#include <vector>

#include "config/box.h"
#include "config/option.h"
#include "milepost/config/command_line.h"

namespace milepost::config {

inline Launch parse(const std::vector<std::string>& words) {
  return parse_command_line(words, {}, [](const std::string&) { return std::string("{}"); });
}

// With the debug model of deepseek_v3.
inline Launch parse_debugmodel(std::vector<std::string> words) {
  words.insert(words.begin(), {"--module", "deepseek_v3", "--config", "deepseek_v3_debugmodel"});
  return parse(words);
}
inline Trainer parsed(std::vector<std::string> words) { return parse_debugmodel(std::move(words)).trainer; }

}  // namespace milepost::config
