// The declarations against the tables of facts about TorchTitan.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "config/option.h"
#include "config/test_tables.h"
#include "milepost/config/registry.h"

namespace milepost::config {
namespace {

constexpr const char* kFields = "fields.tsv";

// The metavar that a type of the table has on the command line.
std::string metavar_of(std::string type) {
  static const std::map<std::string, std::string> kKnown = {
      {"bool", ""},
      {"int", "INT"},
      {"float", "FLOAT"},
      {"str", "STR"},
      {"int?", "{None}|INT"},
      {"float?", "{None}|FLOAT"},
      {"str?", "{None}|STR"},
      {"float or int", "FLOAT|INT"},
      {"list[str]", "A,B,C,..."},
      {"imports", "TARGET[='{\"k\": v}'] ..."},
      {"list[list[str]]?", "{None}|{[A,B,C,... [A,B,C,... ...]]}"},
      {"callable?", "{None}"},
      {"dict", "{}"}};
  const auto known = kKnown.find(type);
  if (known != kKnown.end()) return known->second;
  std::string choices = "{";
  for (char c : type) {
    if (c == '/') {
      choices += ',';
    } else if (c != ' ') {
      choices += c;
    }
  }
  return choices + "}";
}

std::map<std::string, Option> options_by_path(Trainer& trainer) {
  std::map<std::string, Option> options;
  for (const Section& section : option_tree(trainer)) {
    for (const Option& option : section.options) options[option.path] = option;
  }
  return options;
}

// Fields that hold others, or stand for the choice of an alternative.
bool is_structure(const std::string& path) {
  return path == "optimizer.param_groups" || path.ends_with(".policy") || path.ends_with(".type");
}

TEST(Fields, HaveTheTablesDefaults) {
  const std::map<std::string, Json> fields = fields_of(Trainer{});
  for (const auto& row : read_table(kFields)) {
    ASSERT_TRUE(fields.contains(row[0])) << row[0];
    EXPECT_EQ(fields.at(row[0]), Json::parse(row[2])) << row[0];
  }
}

TEST(Fields, HaveTheTablesValuesInTheDebugModel) {
  const std::map<std::string, Json> fields = fields_of(make("deepseek_v3", "deepseek_v3_debugmodel"));
  for (const auto& row : read_table(kFields)) {
    const std::string wanted = row.size() > 3 && !row[3].empty() ? row[3] : row[2];
    EXPECT_EQ(fields.at(row[0]), Json::parse(wanted)) << row[0];
  }
}

TEST(Fields, HaveFlagsOfTheTablesTypes) {
  Trainer trainer;
  const std::map<std::string, Option> options = options_by_path(trainer);
  for (const auto& row : read_table(kFields)) {
    if (is_structure(row[0])) continue;
    ASSERT_TRUE(options.contains(row[0])) << row[0];
    EXPECT_EQ(options.at(row[0]).type->metavar, metavar_of(row[1])) << row[0];
    const bool settable = row[1] != "callable?" && row[1] != "dict";
    EXPECT_EQ(options.at(row[0]).on_command_line(), settable) << row[0];
  }
}

TEST(Fields, AreAllInTheTableOrMarkedAsOurs) {
  std::set<std::string> known;
  for (const auto& row : read_table(kFields)) known.insert(row[0]);
  ASSERT_GT(known.size(), 130u);
  Trainer trainer;
  for (const auto& [path, option] : options_by_path(trainer)) {
    if (path.starts_with("model.")) continue;  // no flag and no such section there
    const bool is_ours = (option.note.marks & kOurs) != 0;
    EXPECT_EQ(known.contains(path), !is_ours || path.starts_with("ema_weights.")) << path;
  }
}

TEST(Fields, AllHaveAHelpText) {
  for (const Entry& entry : entries()) {
    Trainer trainer = entry.make();
    for (const auto& [path, option] : options_by_path(trainer)) {
      EXPECT_GT(option.note.help.size(), 10u) << path;
      EXPECT_TRUE(option.note.help.ends_with('.')) << path;
    }
  }
}

TEST(Fields, HaveDistinctFlags) {
  Trainer trainer = make("llama3", "llama3_debugmodel");
  std::set<std::string> flags;
  for (const auto& [path, option] : options_by_path(trainer)) {
    EXPECT_TRUE(flags.insert(option.flag()).second) << path;
    if (!option.is_bool()) continue;
    EXPECT_TRUE(flags.insert(option.no_flag()).second) << path;
  }
}

TEST(Registry, EntriesDifferFromTheDefaultsAsTheTableSays) {
  std::map<std::string, std::map<std::string, Json>> wanted;
  for (const auto& row : read_table("registries.tsv")) wanted[row[0]][row[1]] = Json::parse(row[2]);
  const std::map<std::string, Json> defaults = fields_of(Trainer{});
  std::set<std::string> seen;
  for (const Entry& entry : entries()) {
    std::map<std::string, Json> different;
    for (const auto& [path, value] : fields_of(entry.make())) {
      const auto usual = defaults.find(path);
      if (usual == defaults.end() || usual->second != value) different[path] = value;
    }
    EXPECT_EQ(different, wanted[std::string(entry.name)]) << entry.name;
    seen.insert(std::string(entry.name));
  }
  for (const auto& [name, fields] : wanted) EXPECT_TRUE(seen.contains(name)) << name;
}

}  // namespace
}  // namespace milepost::config
