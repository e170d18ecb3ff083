#include "storage/errno_error.h"

namespace milepost {
namespace {

std::string_view hint_for(int error_number) {
  switch (error_number) {
    case ENOSPC:
      return "free some space or choose another place";
    case EDQUOT:
      return "free some space or ask for a larger quota";
    case EACCES:
    case EPERM:
      return "check who owns it and its permissions";
    case EROFS:
      return "choose a place that is not mounted read-only";
    case EMFILE:
      return "raise the limit of open files (ulimit -n)";
    case EFBIG:
      return "raise the limit of file sizes (ulimit -f)";
    case EIO:
      return "the disk or its connection may be failing: look at the system's log";
    default:
      return {};
  }
}

}  // namespace

ErrorCode code_of_errno(int error_number) {
  switch (error_number) {
    case ENOSPC:
    case EDQUOT:
      return ErrorCode::kNoSpace;
    case ENOENT:
      return ErrorCode::kNotFound;
    case EEXIST:
    case ENOTEMPTY:
      return ErrorCode::kExists;
    default:
      return ErrorCode::kIo;
  }
}

StorageError errno_error(std::string what_failed, std::string_view path, int error_number) {
  StorageError error(code_of_errno(error_number), std::move(what_failed), path, error_number);
  error.set_hint(hint_for(error_number));
  return error;
}

}  // namespace milepost
