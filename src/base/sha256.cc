#include <openssl/evp.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <new>

#include "base/sha256_kernel.h"
#include "milepost/base/checksum.h"

namespace milepost {
namespace {

// FIPS 180-4, section 5.3.3.
constexpr std::array<uint32_t, 8> kInitialWords = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                                   0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

// OpenSSL reports failures of its digests only for lack of memory or a broken installation.
void require(int openssl_result) {
  if (openssl_result != 1) throw std::bad_alloc();
}

struct FreeContext {
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};

template <typename T>
void store_big_endian(T value, uint8_t* out) {
  for (size_t i = 0; i < sizeof(T); ++i) out[i] = static_cast<uint8_t>(value >> (8 * (sizeof(T) - 1 - i)));
}

}  // namespace

struct Sha256::State {
  std::array<uint32_t, 8> words = kInitialWords;
  std::array<std::byte, kSha256BlockBytes> pending;  // the first total_bytes % 64 are set
  uint64_t total_bytes = 0;
  std::unique_ptr<EVP_MD_CTX, FreeContext> openssl;  // when set, it does the work and the rest is unused

  size_t pending_bytes() const { return total_bytes % kSha256BlockBytes; }

  // Takes what completes the pending block (all of `bytes` when it stays incomplete) and returns what is
  // left.
  Bytes complete_pending(Bytes bytes) {
    const size_t held = pending_bytes();
    if (held == 0) return bytes;
    const size_t taken = std::min(bytes.size(), pending.size() - held);
    std::copy_n(bytes.begin(), taken, pending.begin() + static_cast<std::ptrdiff_t>(held));
    total_bytes += taken;
    if (pending_bytes() == 0 && taken > 0) compress_pending();
    return bytes.subspan(taken);
  }

  void compress_pending() {
    Sha256Lane lane{words.data(), pending.data()};
    sha256_compress(&lane, 1, 1);
  }

  // `rest` follows `bytes` whole blocks that are already compressed.
  void keep_rest(uint64_t bytes, Bytes rest) {
    std::ranges::copy(rest, pending.begin());
    total_bytes += bytes + rest.size();
  }

  void pad() {
    const uint64_t total_bits = total_bytes * 8;
    size_t held = pending_bytes();
    pending[held++] = std::byte{0x80};
    if (held > pending.size() - sizeof(total_bits)) {
      std::fill(pending.begin() + static_cast<std::ptrdiff_t>(held), pending.end(), std::byte{0});
      compress_pending();
      held = 0;
    }
    std::fill(pending.begin() + static_cast<std::ptrdiff_t>(held), pending.end(), std::byte{0});
    store_big_endian(total_bits,
                     reinterpret_cast<uint8_t*>(pending.data()) + pending.size() - sizeof(total_bits));
    compress_pending();
  }
};

Sha256::Sha256(Sha256Backend backend) : state_(std::make_unique<State>()) {
  if (backend == Sha256Backend::kFastest && sha256_kernel_available()) return;
  state_->openssl.reset(EVP_MD_CTX_new());
  if (state_->openssl == nullptr) throw std::bad_alloc();
  require(EVP_DigestInit_ex(state_->openssl.get(), EVP_sha256(), nullptr));
}

Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::update(Bytes bytes) {
  Sha256* const self = this;
  sha256_update_many({&self, 1}, {&bytes, 1});
}

Sha256Digest Sha256::finish() {
  Sha256Digest digest;
  if (state_->openssl != nullptr) {
    require(EVP_DigestFinal_ex(state_->openssl.get(), digest.data(), nullptr));
    return digest;
  }
  state_->pad();
  for (size_t i = 0; i < state_->words.size(); ++i) store_big_endian(state_->words[i], &digest[4 * i]);
  return digest;
}

void sha256_update_many(std::span<Sha256* const> streams, std::span<const Bytes> blocks) {
  assert(streams.size() == blocks.size());
  std::array<Sha256Lane, kSha256MaxStreams> lanes;
  std::array<int64_t, kSha256MaxStreams> blocks_left;
  size_t active = 0, next = 0;
  while (true) {
    for (; active < lanes.size() && next < streams.size(); ++next) {
      Sha256::State& state = *streams[next]->state_;
      if (state.openssl != nullptr) {
        require(EVP_DigestUpdate(state.openssl.get(), blocks[next].data(), blocks[next].size()));
        continue;
      }
      const Bytes bytes = state.complete_pending(blocks[next]);
      const size_t whole = bytes.size() - bytes.size() % kSha256BlockBytes;
      state.keep_rest(whole, bytes.subspan(whole));
      if (whole == 0) continue;
      lanes[active] = {state.words.data(), bytes.data()};
      blocks_left[active++] = static_cast<int64_t>(whole) / kSha256BlockBytes;
    }
    if (active == 0) return;

    const int64_t common = *std::min_element(blocks_left.begin(), blocks_left.begin() + active);
    sha256_compress(lanes.data(), static_cast<int>(active), common);
    size_t kept = 0;
    for (size_t i = 0; i < active; ++i) {
      if (blocks_left[i] == common) continue;
      lanes[kept] = lanes[i];
      blocks_left[kept++] = blocks_left[i] - common;
    }
    active = kept;
  }
}

Sha256Digest sha256(Bytes bytes) {
  Sha256 stream;
  stream.update(bytes);
  return stream.finish();
}

std::string to_hex(const Sha256Digest& digest) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * digest.size());
  for (uint8_t byte : digest) {
    text.push_back(kDigits[byte >> 4]);
    text.push_back(kDigits[byte & 15]);
  }
  return text;
}

}  // namespace milepost
