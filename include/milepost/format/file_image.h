// FileImage: an output file described before its payloads exist: literal bytes (headers, descriptors, directories) and tensor payloads at known offsets.
//
// Formats make images; the engine carries them out: it fills payloads, takes their CRCs on the way, asks for the literals when it reaches them, and writes blocks in order of offset, so that
// every payload before a literal is complete when the literal is rendered.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "milepost/base/bytes.h"

namespace milepost {

class FileImage {
 public:
  struct Part {
    int64_t offset = 0, length = 0;  // bytes in the file; parts follow each other without gaps
    int64_t payload = -1;            // index of the payload, or -1 for a literal
  };

  virtual ~FileImage() = default;
  virtual const std::string& name() const = 0;  // relative to the output folder
  virtual int64_t size() const = 0;             // bytes
  virtual int64_t num_parts() const = 0;
  virtual Part part(int64_t index) const = 0;   // O(1); in order of offset
  virtual bool wants_crc() const = 0;           // whether literals use payload CRCs
  // Appends exactly part(index).length bytes. `payload_crcs[p]` is valid for every payload p that lies before this part. Threads: may be called from any thread. Deterministic.
  virtual void render(int64_t index, std::span<const uint32_t> payload_crcs, ByteVector& out) const = 0;
};

}  // namespace milepost
