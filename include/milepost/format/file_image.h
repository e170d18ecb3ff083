// FileImage: an output file described before its payloads exist: literal bytes (headers, descriptors,
// directories) and tensor payloads at known offsets.
//
// Formats make images; the engine carries them out: it fills payloads, takes their CRCs on the way, asks for
// a literal when it reaches it, and writes in order of offset, so that every payload before a literal is
// complete when the literal is rendered.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "milepost/base/bytes.h"

namespace milepost {

// Immutable: the same calls give the same bytes, whatever the payloads (their CRCs apart), threads and time.
// Threads: any may call any member at once. Memory: about 100 bytes a payload; never the payloads themselves.
class FileImage {
 public:
  // Parts follow each other from byte 0 on without gaps; empty payloads are parts of length 0.
  struct Part {
    int64_t offset = 0, length = 0;  // bytes in the file
    int64_t payload = -1;            // index of the payload, or -1 for a literal
  };

  virtual ~FileImage() = default;

  virtual const std::string& name() const = 0;  // relative to the output folder
  virtual int64_t size() const = 0;             // bytes of the whole file
  virtual int64_t num_parts() const = 0;
  virtual Part part(int64_t index) const = 0;  // in order of offset; O(1)
  virtual bool wants_crc() const = 0;          // whether literals use the payloads' CRCs

  // Appends exactly part(index).length bytes. Requires part(index) to be a literal and `payload_crcs[p]` to
  // be the CRC-32 (0 when empty) of every payload p that lies before it; the others are not looked at.
  virtual void render(int64_t index, std::span<const uint32_t> payload_crcs, ByteVector& out) const = 0;
};

}  // namespace milepost
