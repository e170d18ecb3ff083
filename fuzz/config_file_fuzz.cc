// Any bytes as a configuration file, as JSON and as TOML, and as the words of a command line. What is read
// must be the same after it was written and read again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "milepost/base/error.h"
#include "milepost/config/command_line.h"
#include "milepost/config/config_file.h"

namespace {

using namespace milepost;

void demand(bool holds) {
  if (!holds) std::abort();
}

void check_file(const char* path, const std::string& text) {
  config::Trainer trainer = config::make("deepseek_v3", "deepseek_v3_debugmodel");
  try {
    config::apply_config_file(path, config::parse_config_file(path, text), &trainer);
  } catch (const FormatError&) {
    return;
  }
  const std::string written = config::config_file_text(trainer, "module", "entry");
  config::Trainer again = config::make("llama3", "llama3_8b");
  config::apply_config_file("again", config::parse_config_file("again", written), &again);
  // Texts, since NaN is not equal to itself.
  demand(config::config_file_text(again, "module", "entry") == written);
}

void check_words(const std::string& text) {
  std::vector<std::string> words = {"--module", "deepseek_v3", "--config", "deepseek_v3_debugmodel"};
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  try {
    config::parse_command_line(words, {}, [](const std::string&) { return std::string("{}"); });
  } catch (const config::UsageError& error) {
    demand(!error.box().empty());
  } catch (const ValueError&) {
  } catch (const FormatError&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  check_file("a.json", text);
  check_file("a.toml", text);
  check_words(text);
  return 0;
}
