#include "milepost/storage/lasting.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "storage/errno_error.h"

namespace milepost {
namespace {

TEST(Lasting, IsWhatTellsOfTheFileAndNotOfWhoReads) {
  for (const int number : {EIO, ENOENT, ENODATA, EBADMSG, EUCLEAN, ESTALE}) {
    EXPECT_TRUE(is_lasting(errno_error("cannot read", "/a", number))) << number;
  }
  for (const int number : {EACCES, EPERM, EMFILE, ENFILE, ENOMEM, EAGAIN, ETIMEDOUT, ENOSPC}) {
    EXPECT_FALSE(is_lasting(errno_error("cannot read", "/a", number))) << number;
  }
  EXPECT_TRUE(is_lasting(StorageError(ErrorCode::kNotFound, "no such file", "/a")));
  EXPECT_FALSE(is_lasting(StorageError(ErrorCode::kTruncated, "the file ends", "/a")));
}

}  // namespace
}  // namespace milepost
