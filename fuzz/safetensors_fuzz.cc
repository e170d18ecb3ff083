// Any bytes as a safetensors file. What is read must describe a file that, written anew, reads as the same.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "milepost/base/error.h"
#include "milepost/format/safetensors.h"

namespace {

using namespace milepost;
using namespace milepost::safetensors;

void demand(bool holds) {
  if (!holds) std::abort();
}

// The whole file, payloads zero.
ByteVector rendered(const FileImage& image) {
  ByteVector bytes;
  for (int64_t i = 0; i < image.num_parts(); ++i) {
    const FileImage::Part part = image.part(i);
    demand(part.offset == static_cast<int64_t>(bytes.size()));
    if (part.payload < 0) image.render(i, {}, bytes);
    bytes.resize(static_cast<size_t>(part.offset + part.length));
  }
  demand(image.size() == static_cast<int64_t>(bytes.size()));
  return bytes;
}

void check_rewrite(const Header& header) {
  std::vector<OutTensor> tensors;
  for (const Entry& entry : header.entries) tensors.push_back({entry.name, entry.dtype, entry.shape});
  const Layout layout = file_layout("again", tensors, header.metadata);
  const Header again = read_header(MemorySource(rendered(*layout.image), "again"));
  demand(again.metadata == header.metadata && again.entries.size() == header.entries.size());
  for (size_t p = 0; p < layout.order.size(); ++p) {
    const OutTensor& tensor = tensors[static_cast<size_t>(layout.order[p])];
    const FileImage::Part part = layout.image->part(static_cast<int64_t>(p) + 1);
    demand(part.length == header.entries[static_cast<size_t>(layout.order[p])].length);
    bool found = false;
    for (const Entry& entry : again.entries) {
      found |= entry.name == tensor.name && entry.dtype == tensor.dtype && entry.shape == tensor.shape &&
               entry.offset == part.offset && entry.length == part.length;
    }
    demand(found);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const MemorySource file(std::as_bytes(std::span(data, size)), "fuzz");
  Header header;
  try {
    header = read_header(file);
  } catch (const Error&) {
    return 0;
  }
  int64_t end = header.header_bytes;
  for (const Entry& entry : header.entries) {
    demand(entry.offset == end);
    end += entry.length;
  }
  demand(end == file.size());
  if (header.entries.size() <= 64) check_rewrite(header);
  return 0;
}
