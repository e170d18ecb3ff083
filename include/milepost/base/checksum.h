// CRC-32 (the zip polynomial, reflected 0xEDB88320) and SHA-256, at the speed of the hardware's instructions.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "milepost/base/bytes.h"

namespace milepost {

// CRC-32 of `bytes` appended to data whose CRC is `crc` (0 for none). Cost: > 10 GB/s with carry-less multiply.
uint32_t crc32(uint32_t crc, Bytes bytes);

// CRC-32 of A followed by B, from crc32(0, A), crc32(0, B) and B's length. Cost: O(log length_b).
uint32_t crc32_combine(uint32_t crc_a, uint32_t crc_b, int64_t length_b);

using Sha256Digest = std::array<uint8_t, 32>;
std::string to_hex(const Sha256Digest& digest);

// One stream, incremental. Uses the SHA instructions where present, else OpenSSL.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;
  void update(Bytes bytes);
  Sha256Digest finish();  // may be called once

 private:
  friend void sha256_update_many(std::span<Sha256* const> streams, std::span<const Bytes> blocks);
  struct State;
  std::unique_ptr<State> state_;
};

// streams[i].update(blocks[i]) for all i at once, interleaving up to four streams on one core so that their instruction latencies overlap:
// about three times the rate of one stream. Blocks may differ in length; what is common to the group is interleaved.
void sha256_update_many(std::span<Sha256* const> streams, std::span<const Bytes> blocks);

Sha256Digest sha256(Bytes bytes);

}  // namespace milepost
