// CRC-32 (the zip polynomial, reflected 0xEDB88320) and SHA-256, at the speed of the hardware's instructions.
//
// Both choose their code at run time, from what the processor offers; results never depend on that.
// Threads: the free functions keep no state; a Sha256 belongs to one thread at a time. Errors: none but
// std::bad_alloc.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "milepost/base/bytes.h"

namespace milepost {

// CRC-32 of `bytes` appended to data whose CRC is `crc` (0 for none).
// Cost: > 10 GB/s with carry-less multiply, > 30 GB/s with its 512-bit form.
uint32_t crc32(uint32_t crc, Bytes bytes);

// CRC-32 of A followed by B, from crc32(0, A), crc32(0, B) and B's length (>= 0). Cost: O(log length_b).
uint32_t crc32_combine(uint32_t crc_a, uint32_t crc_b, int64_t length_b);

using Sha256Digest = std::array<uint8_t, 32>;

// 64 lower-case hexadecimal digits, as sha256sum prints them.
std::string to_hex(const Sha256Digest& digest);

// Who computes a digest: the SHA instructions where the processor has them and OpenSSL elsewhere, or OpenSSL
// always. The digests are equal; the second is for tests and benchmarks.
enum class Sha256Backend : uint8_t { kFastest, kOpenSsl };

// One stream, incremental. Cost: 1.8 GB/s or so, the latency of one chain of rounds; use sha256_update_many
// for more.
class Sha256 {
 public:
  explicit Sha256(Sha256Backend backend = Sha256Backend::kFastest);
  ~Sha256();
  Sha256(Sha256&&) noexcept;  // the source may only be assigned to or destroyed
  Sha256& operator=(Sha256&&) noexcept;

  void update(Bytes bytes);
  Sha256Digest finish();  // Requires: called once, as the last call.

 private:
  friend void sha256_update_many(std::span<Sha256* const> streams, std::span<const Bytes> blocks);
  struct State;
  std::unique_ptr<State> state_;
};

// streams[i].update(blocks[i]) for all i at once, interleaving up to four streams on one core so that their
// instruction latencies overlap: about three times the rate of one stream. Blocks may differ in length: as a
// stream's block ends, the next stream takes its place, so order long blocks first where lengths differ much.
// Requires: as many streams as blocks, no stream twice. Streams of the OpenSSL backend are updated one after
// another.
void sha256_update_many(std::span<Sha256* const> streams, std::span<const Bytes> blocks);

// The digest of `bytes`, in one call.
Sha256Digest sha256(Bytes bytes);

}  // namespace milepost
