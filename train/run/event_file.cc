#include "train/run/event_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>

#include "milepost/base/error.h"

namespace milepost::train {
namespace {

constexpr uint32_t kMaskDelta = 0xa282ead8;
constexpr std::string_view kFileVersion = "brain.Event:2";

// Protocol buffers: a field is its number and wire type, then the value.
enum WireType : unsigned { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

void put_varint(std::string* out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out->push_back(static_cast<char>(value | 0x80));
  out->push_back(static_cast<char>(value));
}

void put_key(std::string* out, unsigned number, WireType type) { put_varint(out, number << 3 | type); }

template <typename Integer>
void put_little_endian(std::string* out, Integer value) {
  for (size_t i = 0; i < sizeof value; ++i) out->push_back(static_cast<char>(value >> 8 * i & 0xff));
}

void put_bytes(std::string* out, unsigned number, std::string_view bytes) {
  put_key(out, number, kBytes);
  put_varint(out, bytes.size());
  out->append(bytes);
}

void put_wall_time(std::string* out, double seconds) {
  put_key(out, 1, kFixed64);
  put_little_endian(out, std::bit_cast<uint64_t>(seconds));
}

std::string version_event(double wall_time) {
  std::string event;
  put_wall_time(&event, wall_time);
  put_bytes(&event, 3, kFileVersion);
  return event;
}

uint32_t masked(uint32_t crc) { return std::rotr(crc, 15) + kMaskDelta; }

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string new_file_name() {
  static std::atomic<int> count = 0;
  char host[256] = {};
  if (::gethostname(host, sizeof host - 1) != 0) std::strcpy(host, "unknown");
  return fmt::format("events.out.tfevents.{}.{}.{}.{}", static_cast<int64_t>(now()), host, ::getpid(),
                     count++);
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  static const auto kTable = [] {
    std::array<uint32_t, 256> table{};
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t value = i;
      for (int bit = 0; bit < 8; ++bit) value = value >> 1 ^ (value & 1 ? 0x82F63B78 : 0);
      table[i] = value;
    }
    return table;
  }();
  uint32_t crc = ~uint32_t{0};
  for (const char c : bytes) crc = kTable[(crc ^ static_cast<unsigned char>(c)) & 0xff] ^ crc >> 8;
  return ~crc;
}

std::string event_record(std::string_view payload) {
  std::string record;
  put_little_endian(&record, static_cast<uint64_t>(payload.size()));
  put_little_endian(&record, masked(crc32c(record)));
  record.append(payload);
  put_little_endian(&record, masked(crc32c(payload)));
  return record;
}

std::string scalar_event(double wall_time, int64_t step, std::span<const Scalar> scalars) {
  std::string summary;
  for (const Scalar& scalar : scalars) {
    std::string value;
    put_bytes(&value, 1, scalar.tag);
    put_key(&value, 2, kFixed32);
    put_little_endian(&value, std::bit_cast<uint32_t>(static_cast<float>(scalar.value)));
    put_bytes(&summary, 1, value);
  }
  std::string event;
  put_wall_time(&event, wall_time);
  put_key(&event, 2, kVarint);
  put_varint(&event, static_cast<uint64_t>(step));
  put_bytes(&event, 5, summary);
  return event;
}

EventFile::EventFile(const std::string& folder) {
  std::error_code code;
  std::filesystem::create_directories(folder, code);
  if (code) throw StorageError(ErrorCode::kIo, "cannot make the folder of event files", folder, code.value());
  path_ = (std::filesystem::path(folder) / new_file_name()).string();
  file_.reset(std::fopen(path_.c_str(), "wbx"));
  if (!file_) throw StorageError(ErrorCode::kIo, "cannot make the event file", path_, errno);
  append(version_event(now()));
}

void EventFile::write(int64_t step, std::span<const Scalar> scalars) {
  append(scalar_event(now(), step, scalars));
}

void EventFile::append(std::string_view payload) {
  const std::string record = event_record(payload);
  if (std::fwrite(record.data(), 1, record.size(), file_.get()) != record.size() ||
      std::fflush(file_.get()) != 0) {
    throw StorageError(ErrorCode::kIo, "cannot write the event file", path_, errno);
  }
}

}  // namespace milepost::train
