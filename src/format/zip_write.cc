// Zip as torch's writer frames it. A record at position P of the archive:
//
//   1. local header, 30 bytes: signature, version 0, flags 0x0808 (0x0800 for an empty record), method 0,
//   time, date, CRC
//      and sizes 0, length of the name, length of the extra field
//   2. name
//   3. extra field: a zip64 part when the size or P needs it ("1", length, [size, 0], [P]: u64 each; torch
//   does not know the
//      compressed size at this point and leaves it 0), then "FB", u16 n and n bytes 'Z' up to the next
//      multiple of 64
//   4. payload
//   5. unless it is empty: a descriptor, "PK\7\8", CRC, size, size: the sizes are u64 when there is a zip64
//   part, also
//      where only P needed it
//
// After the last record one central entry each (46 bytes, name, zip64 part with the size twice), then always
// a zip64 end record, its locator and the plain end record, whose fields saturate.
#include <array>
#include <cassert>
#include <cstring>
#include <type_traits>

#include "format/zip_fields.h"
#include "milepost/base/checked_math.h"
#include "milepost/format/zip.h"

namespace milepost::zip {
namespace {

constexpr int64_t kLimit = kSaturated32;  // numbers from here on are written as zip64

// Fields gathered before they are appended in one piece.
class Fields {
 public:
  template <typename T>
  void put(std::type_identity_t<T> value) {
    std::memcpy(bytes_.data() + size_, &value, sizeof(T));
    size_ += sizeof(T);
  }
  void zeros(size_t count) { size_ += count; }
  void append_to(ByteVector& out) const { out.insert(out.end(), bytes_.data(), bytes_.data() + size_); }

 private:
  std::array<std::byte, kEndBytes> bytes_{};
  size_t size_ = 0;
};

void put_text(ByteVector& out, std::string_view text) {
  Bytes bytes = as_bytes(text);
  out.insert(out.end(), bytes.begin(), bytes.end());
}

bool is_large(int64_t number) { return number >= kLimit; }
uint32_t saturate32(int64_t number) {
  return is_large(number) ? kSaturated32 : static_cast<uint32_t>(number);
}
uint16_t saturate16(int64_t number) {
  return number >= kSaturated16 ? kSaturated16 : static_cast<uint16_t>(number);
}
uint16_t record_flags(int64_t size) { return size == 0 ? kUtf8Flag : kUtf8Flag | kDescriptorFlag; }

int64_t zip64_extra_size(int64_t size, int64_t position) {
  if (!is_large(size) && !is_large(position)) return 0;
  return 4 + (is_large(size) ? 16 : 0) + (is_large(position) ? 8 : 0);
}

void put_zip64_extra(ByteVector& out, int64_t size, int64_t compressed_size, int64_t position) {
  int64_t extra = zip64_extra_size(size, position);
  if (extra == 0) return;
  Fields fields;
  fields.put<uint16_t>(kZip64Extra);
  fields.put<uint16_t>(static_cast<uint16_t>(extra - 4));
  if (is_large(size)) {
    fields.put<int64_t>(size);
    fields.put<int64_t>(compressed_size);
  }
  if (is_large(position)) fields.put<int64_t>(position);
  fields.append_to(out);
}

}  // namespace

int64_t payload_position(int64_t position, int64_t name_size, int64_t size, int64_t extra_pad) {
  assert(position >= 0 && size >= 0 && name_size <= 1024 && extra_pad >= 0 && extra_pad <= 65000);
  int64_t start = position + kLocalBytes + name_size + zip64_extra_size(size, position) + 4;
  return round_up(start, kAlignment) + extra_pad;
}

void append_local_header(ByteVector& out, int64_t position, std::string_view name, int64_t size,
                         int64_t extra_pad) {
  auto name_size = static_cast<int64_t>(name.size());
  int64_t header_bytes = payload_position(position, name_size, size, extra_pad) - position;
  int64_t extra = header_bytes - kLocalBytes - name_size;
  int64_t pad = extra - zip64_extra_size(size, position) - 4;
  Fields fields;
  fields.put<uint32_t>(kLocalSignature);
  fields.put<uint16_t>(0);
  fields.put<uint16_t>(record_flags(size));
  fields.zeros(18);  // method, time, date, CRC, sizes
  fields.put<uint16_t>(static_cast<uint16_t>(name_size));
  fields.put<uint16_t>(static_cast<uint16_t>(extra));
  fields.append_to(out);
  put_text(out, name);
  put_zip64_extra(out, size, 0, position);
  Fields padding;
  padding.put<char>('F');
  padding.put<char>('B');
  padding.put<uint16_t>(static_cast<uint16_t>(pad));
  padding.append_to(out);
  out.resize(out.size() + static_cast<size_t>(pad), std::byte{'Z'});
}

int64_t descriptor_size(int64_t size, int64_t header_position) {
  if (size == 0) return 0;
  return zip64_extra_size(size, header_position) == 0 ? 16 : 24;
}

void append_descriptor(ByteVector& out, uint32_t crc32, int64_t size, int64_t header_position) {
  int64_t bytes = descriptor_size(size, header_position);
  if (bytes == 0) return;
  Fields fields;
  fields.put<uint32_t>(kDescriptorSignature);
  fields.put<uint32_t>(crc32);
  for (int i = 0; i < 2; ++i) {
    if (bytes == 24) {
      fields.put<int64_t>(size);
    } else {
      fields.put<uint32_t>(static_cast<uint32_t>(size));
    }
  }
  fields.append_to(out);
}

int64_t directory_entry_size(const Written& record) {
  return kCentralBytes + static_cast<int64_t>(record.name.size()) +
         zip64_extra_size(record.size, record.header_position);
}

void append_directory_entry(ByteVector& out, const Written& record) {
  Fields fields;
  fields.put<uint32_t>(kCentralSignature);
  fields.put<uint32_t>(0);  // version made by, version needed
  fields.put<uint16_t>(record_flags(record.size));
  fields.zeros(6);  // method, time, date
  fields.put<uint32_t>(record.size == 0 ? 0 : record.crc32);
  fields.put<uint32_t>(saturate32(record.size));
  fields.put<uint32_t>(saturate32(record.size));
  fields.put<uint16_t>(static_cast<uint16_t>(record.name.size()));
  fields.put<uint16_t>(static_cast<uint16_t>(zip64_extra_size(record.size, record.header_position)));
  fields.zeros(10);  // comment length, disk, attributes
  fields.put<uint32_t>(saturate32(record.header_position));
  fields.append_to(out);
  put_text(out, record.name);
  put_zip64_extra(out, record.size, record.size, record.header_position);
}

void append_end(ByteVector& out, int64_t directory_position, int64_t directory_bytes, int64_t num_records) {
  Fields fields;
  fields.put<uint32_t>(kZip64EndSignature);
  fields.put<int64_t>(kZip64EndBytes - 12);  // what follows this field
  fields.put<uint16_t>(0x031e);              // made by
  fields.put<uint16_t>(0x002d);              // needed
  fields.put<uint64_t>(0);                   // disks
  fields.put<int64_t>(num_records);
  fields.put<int64_t>(num_records);
  fields.put<int64_t>(directory_bytes);
  fields.put<int64_t>(directory_position);

  fields.put<uint32_t>(kZip64LocatorSignature);
  fields.put<uint32_t>(0);
  fields.put<int64_t>(directory_position + directory_bytes);
  fields.put<uint32_t>(1);  // disks in all

  fields.put<uint32_t>(kEndSignature);
  fields.put<uint32_t>(0);
  fields.put<uint16_t>(saturate16(num_records));
  fields.put<uint16_t>(saturate16(num_records));
  fields.put<uint32_t>(saturate32(directory_bytes));
  fields.put<uint32_t>(saturate32(directory_position));
  fields.put<uint16_t>(0);
  fields.append_to(out);
}

}  // namespace milepost::zip
