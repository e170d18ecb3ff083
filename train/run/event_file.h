// TensorBoard's event files: scalars over steps.
//
// A file is a sequence of records:
//   1. length of the payload, 8 bytes, little-endian;
//   2. masked CRC-32C of those 8 bytes, 4 bytes;
//   3. the payload, an `Event` protocol buffer: wall_time (1, double), step (2, int64), file_version (3,
//   string;
//      the first record only), summary (5, holding values (1) of tag (1, string) and simple_value (2,
//      float));
//   4. masked CRC-32C of the payload.
// The mask is rotate-right by 15, plus 0xa282ead8, so that a CRC over data that hold CRCs stays useful.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace milepost::train {

struct Scalar {
  std::string tag;
  double value = 0;
};

// One file, for one thread. Every write reaches the system, so that TensorBoard shows a step when it is done
// and a crash loses none; a power cut may.
class EventFile {
 public:
  // Makes `folder` and a file in it that no other run has. Throws StorageError.
  explicit EventFile(const std::string& folder);

  // All scalars of a step as one record. Throws StorageError.
  void write(int64_t step, std::span<const Scalar> scalars);
  const std::string& path() const { return path_; }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  void append(std::string_view payload);

  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

// A record as it lies in the file.
std::string event_record(std::string_view payload);
// The payload of a step's scalars.
std::string scalar_event(double wall_time, int64_t step, std::span<const Scalar> scalars);
// CRC-32C (Castagnoli), unmasked.
uint32_t crc32c(std::string_view bytes);

}  // namespace milepost::train
