// `.metadata` by both readers: what the fast one takes, the general one must take and read alike, and what is
// read must come back from what the writer makes of it.
#include <cstdio>
#include <cstdlib>

#include "format/dcp_metadata_compare.h"
#include "format/dcp_metadata_fast.h"
#include "milepost/base/error.h"
#include "milepost/format/dcp.h"

namespace milepost::dcp {
namespace {

void require_same(const std::string& difference, const char* of_what) {
  if (difference.empty()) return;
  std::fprintf(stderr, "%s: %s\n", of_what, difference.c_str());
  std::abort();
}

void check(Bytes bytes) {
  const MemorySource source(bytes, "fuzz");
  const std::optional<Metadata> fast = read_metadata_fast(source);
  Metadata general;
  try {
    general = read_metadata_general(source);
  } catch (const FormatError& error) {
    require_same(fast ? error.what() : "", "only the fast reader takes it");
    return;
  }
  if (fast) require_same(metadata_difference(*fast, general), "fast and general");

  VectorSink sink;
  write_metadata(general.catalog, {.checkpoint_id = "fuzz", .save_id = {}}, sink);
  const Metadata again = read_metadata(MemorySource(Bytes(sink.data), "written"));
  general.catalog.set_has_paths(true);  // always written
  require_same(catalog_difference(general.catalog, again.catalog), "written and read");
}

}  // namespace
}  // namespace milepost::dcp

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  milepost::dcp::check(std::as_bytes(std::span(data, size)));
  return 0;
}
