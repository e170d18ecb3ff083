#include <algorithm>
#include <iterator>

#include "engine/verify_parts.h"

namespace milepost {

void Findings::add(Finding::Severity severity, ErrorCode code, const Place& place, std::string summary,
                   std::string hint) {
  FormatError text(code, std::move(summary), std::move(hint));
  text.set_path(place.path).set_key(place.key).set_offset(place.offset);
  list_.push_back(
      {severity, code, std::string(place.path), std::string(place.key), place.offset, text.what()});
}

void Findings::add(const Error& thrown, const Place& place) {
  // An entry that is refused is one that other programs can read; a whole file of which nothing can be listed
  // is not checked at all.
  const bool refused = thrown.code() == ErrorCode::kRefusedGlobal && !place.key.empty();
  const int64_t base = std::max<int64_t>(place.offset, 0);
  const Place where{place.path, place.key.empty() ? std::string_view(thrown.key()) : place.key,
                    thrown.offset() >= 0 ? base + thrown.offset() : place.offset};
  FormatError text(thrown.code(), thrown.summary(), thrown.hint());
  text.set_error_number(thrown.error_number());
  text.set_path(where.path).set_key(where.key).set_offset(where.offset);
  list_.push_back({refused ? Finding::Severity::kWarning : Finding::Severity::kError, thrown.code(),
                   std::string(where.path), std::string(where.key), where.offset, text.what()});
}

void Findings::append(Findings&& other) {
  std::move(other.list_.begin(), other.list_.end(), std::back_inserter(list_));
  other.list_.clear();
}

bool Findings::has_errors() const {
  return std::any_of(list_.begin(), list_.end(),
                     [](const Finding& finding) { return finding.severity == Finding::Severity::kError; });
}

}  // namespace milepost
