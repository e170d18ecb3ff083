// Any bytes as index.json and as a hash manifest. What is read must be the same after it was written and read
// again.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "milepost/base/error.h"
#include "milepost/format/manifest.h"
#include "milepost/format/safetensors.h"

namespace {

using namespace milepost;

void demand(bool holds) {
  if (!holds) std::abort();
}

void check_index(const ByteSource& file) {
  safetensors::Index index;
  try {
    index = safetensors::read_index(file);
  } catch (const Error&) {
    return;
  }
  const std::string text = safetensors::write_index(index);
  const safetensors::Index again = safetensors::read_index(MemorySource(as_bytes(text), "again"));
  std::sort(index.weight_map.begin(), index.weight_map.end());
  demand(again.weight_map == index.weight_map && again.total_size == index.total_size);
  for (const auto& [tensor, name] : again.weight_map) demand(name.find('/') == std::string::npos);
}

void check_manifest(const ByteSource& file) {
  manifest::Hashes hashes;
  try {
    hashes = manifest::read(file);
  } catch (const Error&) {
    return;
  }
  const std::string text = manifest::write(hashes);
  demand(manifest::read(MemorySource(as_bytes(text), "again")) == hashes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const MemorySource file(std::as_bytes(std::span(data, size)), "fuzz");
  check_index(file);
  check_manifest(file);
  return 0;
}
