// check_numerics [--verbose] FOLDER...: trains the tiny model of each folder (tests/data/numerics/README.md)
// and holds everything that its expected*.json and expected*.safetensors say against what came of it. Prints
// a line for each group of values that differs, with --verbose one for every group, and ends with `N passed,
// M failed`; exit status 1 when any failed, 2 for a wrong command line.
#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "train/numerics/compare.h"

namespace milepost::train {
namespace {

struct Tally {
  int64_t passed = 0, failed = 0;
};

void check_expected(const Fixture& fixture, const Expected& expected, bool verbose, Tally* tally) {
  const Recorded recorded = run_fixture(fixture, expected);
  const char* kind = expected.fp32_experts ? "expected_fp32experts" : "expected";
  for (const auto& [group, result] : compare(fixture, expected, recorded)) {
    ++(result.passed() ? tally->passed : tally->failed);
    if (result.passed() && !verbose) continue;
    fmt::print("{}: {}/{}: {}: {} of {} values off{}{}\n", result.passed() ? "pass" : "FAIL", fixture.folder,
               kind, group, result.num_off, result.num_values,
               result.worst_text.empty() ? "" : "; worst: ", result.worst_text);
  }
}

void check_folder(const std::string& folder, bool verbose, Tally* tally) {
  try {
    const Fixture fixture = read_fixture(folder);
    for (const Expected& expected : read_expected(folder)) check_expected(fixture, expected, verbose, tally);
  } catch (const std::exception& error) {
    ++tally->failed;
    fmt::print("FAIL: {}: {}\n", folder, error.what());
  }
}

int check_all(const std::vector<std::string>& arguments) {
  bool verbose = false;
  std::vector<std::string> folders;
  for (const std::string& argument : arguments) {
    if (argument == "--verbose") {
      verbose = true;
    } else {
      folders.push_back(argument);
    }
  }
  if (folders.empty() || folders[0].starts_with("-")) {
    fmt::print(stderr, "usage: check_numerics [--verbose] FOLDER...\n");
    return 2;
  }
  Tally tally;
  for (const std::string& folder : folders) check_folder(folder, verbose, &tally);
  fmt::print("{} passed, {} failed\n", tally.passed, tally.failed);
  return tally.failed > 0 ? 1 : 0;
}

}  // namespace
}  // namespace milepost::train

int main(int argc, char** argv) {
  try {
    return milepost::train::check_all({argv + 1, argv + argc});
  } catch (...) {
    return 1;  // nothing could be printed
  }
}
