// Throws the errors of zip and torch_zip with path and offset set.
#pragma once

#include <cstdint>
#include <string>

#include "milepost/base/bytes.h"
#include "milepost/base/error.h"

namespace milepost::zip {

// `offset` counts from the start of `source`; -1 where no byte is at fault.
[[noreturn]] inline void fail(const ByteSource& source, ErrorCode code, int64_t offset, std::string what,
                              std::string hint = {}) {
  FormatError error(code, std::move(what), std::move(hint));
  error.set_path(source.name());
  if (offset >= 0) error.set_offset(offset);
  throw error;
}

// `error` as it reads in a source that holds the faulty one from `start` on: its offset, if any, moves; path
// and key stay.
inline FormatError moved(const FormatError& error, int64_t start) {
  FormatError result(error.code(), error.summary(), error.hint());
  if (!error.path().empty()) result.set_path(error.path());
  if (!error.key().empty()) result.set_key(error.key());
  if (error.offset() >= 0) result.set_offset(error.offset() + start);
  return result;
}

}  // namespace milepost::zip
