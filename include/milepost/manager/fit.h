// Fit: all differences between a checkpoint and what a job wants of it, found before anything is loaded and
// told in one report. Pure; any thread.
#pragma once

#include <string>
#include <vector>

#include "milepost/catalog/catalog.h"

namespace milepost::manager {

struct WantedEntry {
  std::string name;
  bool is_object = false;
  Dims shape = {};  // of tensors: the whole tensor's
};

struct Fit {
  std::vector<std::string> missing;
  std::vector<std::string> mismatched;  // "name: saved [4, 2], wanted [6, 2]"
  std::vector<std::string> unexpected;  // tensors of the model that nobody wants
  bool is_good() const { return missing.empty() && mismatched.empty(); }
};
// `with_unexpected`: look for those, too.
Fit compare(const Catalog& catalog, const std::vector<WantedEntry>& wanted, bool with_unexpected);

// Throws unless the fit is good: ShapeMismatchError when a shape or kind differs, else MissingKeyError, with
// `path` and the lists, each cut after 20 names. Unexpected names alone are no error.
void require_fit(const Fit& fit, const std::string& path);

// The names, at most `limit` of them, and how many more there are: "a, b and 7 more".
std::string names_text(const std::vector<std::string>& names, size_t limit);

}  // namespace milepost::manager
