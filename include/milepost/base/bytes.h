// ByteSource and ByteSink: the seam between storage (or memory) and everything that understands bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace milepost {

using Bytes = std::span<const std::byte>;
using MutableBytes = std::span<std::byte>;
using ByteVector = std::vector<std::byte>;

// Random-access bytes of fixed size: an open file, an object, or memory.
//
// Threads: all const members may be called from any thread at once; a read takes an offset, there is no
// shared position.
class ByteSource {
 public:
  virtual ~ByteSource() = default;

  virtual int64_t size() const = 0;  // bytes

  // Fills all of `dst` from byte `offset` on. Throws StorageError (path set; kTruncated when the range leaves
  // the source, kIo when the system fails); `dst` then holds unspecified bytes. Cost: one system call where
  // the source is a file.
  virtual void read_at(int64_t offset, MutableBytes dst) const = 0;

  // The whole content when it already lies in memory (valid as long as the source), else nullptr. Never maps
  // a file.
  virtual const std::byte* data() const { return nullptr; }

  // For messages: the path as the user would write it.
  virtual const std::string& name() const = 0;
};

// Bytes in memory. `MemorySource(span)` looks at memory owned elsewhere, which must outlive it.
class MemorySource final : public ByteSource {
 public:
  MemorySource(Bytes bytes, std::string name) : bytes_(bytes), name_(std::move(name)) {}
  MemorySource(ByteVector owned, std::string name)
      : owned_(std::move(owned)), bytes_(owned_), name_(std::move(name)) {}
  MemorySource(const MemorySource&) = delete;  // a copy would look into the buffer of the original
  MemorySource& operator=(const MemorySource&) = delete;

  int64_t size() const override { return static_cast<int64_t>(bytes_.size()); }
  void read_at(int64_t offset, MutableBytes dst) const override;
  const std::byte* data() const override { return bytes_.data(); }
  const std::string& name() const override { return name_; }

 private:
  ByteVector owned_;
  Bytes bytes_;
  std::string name_;
};

// A window [offset, offset + length) of another source, which it shares. Throws FormatError(kOutOfBounds) at
// construction if the window leaves it.
class SliceSource final : public ByteSource {
 public:
  SliceSource(std::shared_ptr<const ByteSource> whole, int64_t offset, int64_t length);

  int64_t size() const override { return length_; }
  void read_at(int64_t offset, MutableBytes dst) const override;
  const std::byte* data() const override;
  const std::string& name() const override { return whole_->name(); }

 private:
  std::shared_ptr<const ByteSource> whole_;
  int64_t offset_, length_;
};

// Bytes going out in order. Threads: one writer. Errors: StorageError; what was appended before stays.
class ByteSink {
 public:
  virtual ~ByteSink() = default;
  virtual void append(Bytes bytes) = 0;
};

// Collects in memory.
class VectorSink final : public ByteSink {
 public:
  void append(Bytes bytes) override { data.insert(data.end(), bytes.begin(), bytes.end()); }
  ByteVector data;
};

// Reads all of `source`, which must not be larger than `max_bytes` (FormatError kTooLarge).
ByteVector read_all(const ByteSource& source, int64_t max_bytes);

inline Bytes as_bytes(std::string_view text) { return std::as_bytes(std::span(text.data(), text.size())); }
inline std::string_view as_text(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace milepost
