#include "format/dcp_metadata_fast.h"
#include "milepost/format/dcp.h"

namespace milepost::dcp {

Metadata read_metadata(const ByteSource& source) {
  if (std::optional<Metadata> metadata = read_metadata_fast(source)) return std::move(*metadata);
  return read_metadata_general(source);
}

}  // namespace milepost::dcp
