// Turns an errno into the StorageError that callers of Storage expect, with a hint where there is
// something to do.
#pragma once

#include <cerrno>
#include <string>
#include <string_view>

#include "milepost/base/error.h"

namespace milepost {

// ENOSPC, EDQUOT: kNoSpace; ENOENT: kNotFound; EEXIST, ENOTEMPTY: kExists; all others: kIo.
ErrorCode code_of_errno(int error_number);

// `what_failed` as in "cannot open for reading".
StorageError errno_error(std::string what_failed, std::string_view path, int error_number);

// Calls until it is not interrupted by a signal. `call` returns -1 and sets errno on failure.
template <typename Call>
auto retry_interrupted(Call call) {
  for (;;) {
    const auto result = call();
    if (result != -1 || errno != EINTR) return result;
  }
}

}  // namespace milepost
