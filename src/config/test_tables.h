// What the tests of configurations share: tables of facts, and configurations as flat lists of fields.
#pragma once

#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "config/json.h"

namespace milepost::config {

// Lines of tests/data/config/NAME, split at tabs, without the heading.
inline std::vector<std::vector<std::string>> read_table(const std::string& name) {
  std::ifstream file(std::string(MILEPOST_TEST_DATA) + "/config/" + name);
  std::vector<std::vector<std::string>> rows;
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line)) {
    std::istringstream fields(line + "\t");
    rows.emplace_back();
    for (std::string field; std::getline(fields, field, '\t');) rows.back().push_back(field);
  }
  return rows;
}

inline void flatten(const Json& json, const std::string& path, std::map<std::string, Json>* fields) {
  if (!json.is_object() || json.empty()) {
    (*fields)[path] = json;
    return;
  }
  for (const auto& [key, value] : json.items()) flatten(value, path.empty() ? key : path + "." + key, fields);
}

// Path -> value of every field, lists as one value; the model apart.
inline std::map<std::string, Json> fields_of(const Trainer& trainer) {
  Json json = to_json(trainer);
  json.erase("model");
  std::map<std::string, Json> fields;
  flatten(json, "", &fields);
  return fields;
}

}  // namespace milepost::config
