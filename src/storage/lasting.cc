#include "milepost/storage/lasting.h"

#include <cerrno>

namespace milepost {

bool is_lasting(const StorageError& error) {
  if (error.code() == ErrorCode::kNotFound) return true;
  switch (error.error_number()) {
    case EIO:
    case ENODATA:
    case EBADMSG:
    case EUCLEAN:
    case ESTALE:
      return true;
    default:
      return false;
  }
}

}  // namespace milepost
