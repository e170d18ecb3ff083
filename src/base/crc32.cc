#include <isa-l/crc.h>
#include <zlib.h>

#include "milepost/base/checksum.h"

namespace milepost {

static_assert(sizeof(z_off_t) == sizeof(int64_t), "crc32_combine must take lengths beyond 2 GiB");

uint32_t crc32(uint32_t crc, Bytes bytes) {
  return ::crc32_gzip_refl(crc, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
}

uint32_t crc32_combine(uint32_t crc_a, uint32_t crc_b, int64_t length_b) {
  return static_cast<uint32_t>(::crc32_combine(crc_a, crc_b, length_b));
}

}  // namespace milepost
