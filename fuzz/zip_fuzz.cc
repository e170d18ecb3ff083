// Zip and torch.save archives from arbitrary bytes: nothing may crash, hang or take more memory than the
// bytes justify, and the two ways to read a tensor's pickle must agree.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "format/torch_zip_tensor_pickle.h"
#include "milepost/base/error.h"
#include "milepost/format/torch_zip.h"
#include "milepost/format/zip.h"

namespace milepost {
namespace {

// Bytes that do not lie in memory for the reader, as a file's.
class FileLike final : public ByteSource {
 public:
  explicit FileLike(Bytes bytes) : memory_(bytes, "fuzz") {}
  int64_t size() const override { return memory_.size(); }
  const std::string& name() const override { return memory_.name(); }
  void read_at(int64_t offset, MutableBytes dst) const override { memory_.read_at(offset, dst); }

 private:
  MemorySource memory_;
};

void require(bool condition) {
  if (!condition) std::abort();
}

template <typename Run>
bool succeeds(Run run) {
  try {
    run();
    return true;
  } catch (const FormatError& error) {
    require(error.what()[0] != '\0');
    return false;
  }
}

void read_records(const ByteSource& source) {
  for (zip::Record& record : zip::read_directory(source)) {
    succeeds([&] {
      ByteVector bytes = zip::read_record(source, record, 1 << 20, true);
      require(static_cast<int64_t>(bytes.size()) == record.size);
      require(record.data_offset >= 0 && record.data_offset + record.compressed_size <= source.size());
    });
  }
}

void check_tensor(const ByteSource& in_memory, const ByteSource& in_file) {
  torch_zip::TensorItem first, second;
  bool found = succeeds([&] { first = torch_zip::resolve_tensor(in_memory); });
  require(found == succeeds([&] { second = torch_zip::resolve_tensor(in_file); }));
  if (!found) return;
  require(first.dtype == second.dtype && first.sizes == second.sizes && first.layout == second.layout);
  require(first.row_major == second.row_major && first.payload_offset == second.payload_offset);
  require(first.payload_offset >= 0 && first.payload_bytes >= 0);
  require(first.payload_offset + first.payload_bytes <= in_memory.size());
  torch_zip::Object object = torch_zip::read_object(in_memory, false);
  const pickle::TensorRef& tensor = object.document.root().tensor();
  require(tensor.dtype == first.dtype && tensor.storage_bytes == first.payload_bytes);
  require(Dims(tensor.sizes.begin(), tensor.sizes.end()) == first.sizes);
  require(Dims(tensor.strides.begin(), tensor.strides.end()) == first.layout.strides);
  require(tensor.storage_offset == first.layout.storage_offset);
}

void check_pth(const ByteSource& source) {
  torch_zip::PthFile pth = torch_zip::read_pth(source, "fuzz.pth");
  require(pth.object_values.size() == pth.catalog.objects().size());
  for (const Catalog::Tensor& tensor : pth.catalog.tensors()) {
    const Location& location = pth.catalog.chunk_location(tensor.first_chunk);
    require(location.offset >= 0 && location.length >= 0 && location.offset <= source.size());
    require(location.length <= source.size() - location.offset);
    require(location.layout != Location::kRowMajor || location.length == tensor_bytes(tensor));
  }
}

uint32_t field32(Bytes bytes, size_t at) {
  uint32_t value = 0;
  std::memcpy(&value, bytes.data() + at, sizeof(value));
  return value;
}

// The archive at the end of `bytes`, as its end record has it: a .distcp file is many archives end to end.
Bytes last_archive(Bytes bytes) {
  constexpr size_t kEnd = 22, kZip64 = 76;
  if (bytes.size() < kEnd || field32(bytes, bytes.size() - kEnd) != 0x06054b50) return bytes;
  uint64_t length = uint64_t{field32(bytes, bytes.size() - 10)} + field32(bytes, bytes.size() - 6) + kEnd;
  if (bytes.size() >= kEnd + kZip64 && field32(bytes, bytes.size() - kEnd - kZip64) == 0x06064b50)
    length += kZip64;
  return length < bytes.size() ? bytes.last(length) : bytes;
}

// With the checksums of the directory gone, so that changed pickles are not refused before they are read.
ByteVector without_checksums(Bytes bytes) {
  ByteVector out(bytes.begin(), bytes.end());
  for (size_t at = 0; at + 20 <= out.size(); ++at) {
    if (field32(out, at) == 0x02014b50)
      std::fill_n(out.begin() + static_cast<std::ptrdiff_t>(at) + 16, 4, std::byte{0});
  }
  return out;
}

}  // namespace
}  // namespace milepost

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace milepost;
  Bytes input(reinterpret_cast<const std::byte*>(data), size);
  MemorySource whole(input, "fuzz");
  succeeds([&] { read_records(whole); });
  ByteVector bytes = without_checksums(last_archive(input));
  MemorySource in_memory(Bytes(bytes), "fuzz");
  FileLike in_file(bytes);
  succeeds([&] { read_records(in_file); });
  check_tensor(in_memory, in_file);
  succeeds([&] { torch_zip::read_object(in_file, true); });
  succeeds([&] { check_pth(in_memory); });
  return 0;
}
