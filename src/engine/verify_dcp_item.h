// One item of a data file against what the index says of it.
#pragma once

#include <memory>
#include <string>

#include "engine/verify_parts.h"
#include "milepost/catalog/catalog.h"

namespace milepost {

// Which chunk or object an item is.
struct ItemEntry {
  const Catalog& catalog;
  int64_t entry;  // chunk, or -1 - object

  bool is_object() const { return entry < 0; }
  const Catalog::Tensor& tensor() const;  // requires a chunk
  const std::string& name() const;
  std::string text() const;  // "'w' rows 2:4", "'w' [0:2, 4:8]", "'step'"
};

// Checks the archive in [offset, offset + length), which lies inside `file`: structure, CRCs, dtype and
// shape, decoding of objects. `block` holds small items whole, so that they cost one read.
void check_item(const std::shared_ptr<const ByteSource>& file, int64_t offset, int64_t length,
                const ItemEntry& entry, const std::string& path, bool payloads, MutableBytes block,
                Findings& findings, CrcTally* tally);

}  // namespace milepost
