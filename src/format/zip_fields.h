// Signatures and little-endian fields of zip, shared by reader and writer.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "milepost/base/bytes.h"

namespace milepost::zip {

static_assert(std::endian::native == std::endian::little, "fields are copied as they lie in memory");

inline constexpr uint32_t kLocalSignature = 0x04034b50;       // "PK\3\4"
inline constexpr uint32_t kDescriptorSignature = 0x08074b50;  // "PK\7\8"
inline constexpr uint32_t kCentralSignature = 0x02014b50;     // "PK\1\2"
inline constexpr uint32_t kZip64EndSignature = 0x06064b50;    // "PK\6\6"
inline constexpr uint32_t kZip64LocatorSignature = 0x07064b50;
inline constexpr uint32_t kEndSignature = 0x06054b50;  // "PK\5\6"

inline constexpr int64_t kLocalBytes = 30, kCentralBytes = 46;  // without name, extra field and comment
inline constexpr int64_t kZip64EndBytes = 56, kLocatorBytes = 20, kEndRecordBytes = 22;

inline constexpr uint32_t kSaturated32 = 0xffffffff;  // "see the zip64 field"
inline constexpr uint16_t kSaturated16 = 0xffff;
inline constexpr uint16_t kZip64Extra = 1;

inline constexpr uint16_t kEncryptedFlags = 0x2041;  // encrypted, strongly encrypted, masked headers
inline constexpr uint16_t kDescriptorFlag = 0x0008;  // sizes and CRC follow the payload
inline constexpr uint16_t kUtf8Flag = 0x0800;

template <typename T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}
inline uint16_t load16(const std::byte* at) { return load<uint16_t>(at); }
inline uint32_t load32(const std::byte* at) { return load<uint32_t>(at); }
inline uint64_t load64(const std::byte* at) { return load<uint64_t>(at); }

}  // namespace milepost::zip
