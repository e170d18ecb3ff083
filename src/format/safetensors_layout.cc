// Laying out a safetensors file as the reference library (0.8) does, byte for byte.
//
// 1. Tensors are sorted by dtype in the order of kDTypeOrder, then by the bytes of their names.
// 2. Header, in that order and without spaces:
//      {"__metadata__":{...},"NAME":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},...}
//    Strings as serde_json writes them. No __metadata__ when there is none; the reference orders its keys at
//    random, we by name.
// 3. Spaces up to a multiple of 8: the data start aligned, and larger elements come first, so all stay so.
// 4. The payloads, without gaps.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <numeric>

#include "format/json_text.h"
#include "format/safetensors_bytes.h"
#include "milepost/base/checked_math.h"
#include "milepost/base/error.h"
#include "milepost/format/safetensors.h"

namespace milepost::safetensors {
namespace {

constexpr int64_t kLengthBytes = 8, kAlignment = 8;
constexpr std::string_view kMetadataKey = "__metadata__";

// First in the file to last.
constexpr DType kDTypeOrder[] = {
    DType::kUInt64,         DType::kInt64,         DType::kFloat64,      DType::kComplex64,
    DType::kFloat32,        DType::kUInt32,        DType::kInt32,        DType::kBFloat16,
    DType::kFloat16,        DType::kUInt16,        DType::kInt16,        DType::kFloat8E5M2FNUZ,
    DType::kFloat8E4M3FNUZ, DType::kFloat8E8M0FNU, DType::kFloat8E4M3FN, DType::kFloat8E5M2,
    DType::kInt8,           DType::kUInt8,         DType::kFloat6E3M2,   DType::kFloat6E2M3,
    DType::kFloat4E2M1FNx2, DType::kBool,
};

ptrdiff_t rank(DType dtype) {
  return std::find(std::begin(kDTypeOrder), std::end(kDTypeOrder), dtype) - kDTypeOrder;
}

[[noreturn]] void refuse(ErrorCode code, std::string what, const OutTensor& tensor) {
  FormatError error(code, std::move(what));
  error.set_key(tensor.name);
  throw error;
}

// The shape as the format counts it.
Dims written_shape(const OutTensor& tensor) {
  Dims shape = tensor.shape;
  if (tensor.dtype != DType::kFloat4E2M1FNx2) return shape;
  if (shape.empty() || !checked_mul(shape.back(), 2, &shape.back())) {
    refuse(ErrorCode::kUnsupported,
           fmt::format("safetensors cannot hold shape {} of {}", dims_text(tensor.shape),
                       dtype_name(tensor.dtype)),
           tensor);
  }
  return shape;
}

void check_writable(const OutTensor& tensor) {
  if (dtype_info(tensor.dtype).safetensors.empty()) {
    refuse(ErrorCode::kUnsupported, fmt::format("safetensors cannot hold {}", dtype_name(tensor.dtype)),
           tensor);
  }
  if (!is_utf8(tensor.name))
    refuse(ErrorCode::kUnsupported, "the name is not UTF-8, which JSON demands", tensor);
  if (tensor.name == kMetadataKey) refuse(ErrorCode::kUnsupported, "safetensors reserves this name", tensor);
}

std::string metadata_json(const std::map<std::string, std::string>& metadata) {
  std::string json = "{";
  for (const auto& [key, value] : metadata) {
    if (!is_utf8(key) || !is_utf8(value)) {
      throw FormatError(ErrorCode::kUnsupported,
                        fmt::format("metadata '{}' is not UTF-8, which JSON demands", printable(key)));
    }
    if (json.size() > 1) json += ',';
    append_json_string(&json, key, JsonEscapes::kFewest);
    json += ':';
    append_json_string(&json, value, JsonEscapes::kFewest);
  }
  return json + '}';
}

class SafetensorsImage final : public FileImage {
 public:
  SafetensorsImage(std::string name, std::string header, std::vector<int64_t> ends)
      : name_(std::move(name)), header_(std::move(header)), ends_(std::move(ends)) {}

  const std::string& name() const override { return name_; }
  int64_t size() const override { return ends_.back(); }
  int64_t num_parts() const override { return static_cast<int64_t>(ends_.size()); }
  Part part(int64_t index) const override {
    const auto i = static_cast<size_t>(index);
    const int64_t begin = i == 0 ? 0 : ends_[i - 1];
    return {begin, ends_[i] - begin, index - 1};
  }
  bool wants_crc() const override { return false; }
  void render(int64_t, std::span<const uint32_t>, ByteVector& out) const override {
    const Bytes bytes = as_bytes(header_);
    out.insert(out.end(), bytes.begin(), bytes.end());
  }

 private:
  std::string name_, header_;  // the header with its length and padding
  std::vector<int64_t> ends_;  // of the parts: the header, then payload by payload
};

std::vector<int64_t> file_order(const std::vector<OutTensor>& tensors) {
  std::vector<int64_t> order(tensors.size());
  std::iota(order.begin(), order.end(), 0);
  const auto at = [&](int64_t i) -> const OutTensor& { return tensors[static_cast<size_t>(i)]; };
  std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    const ptrdiff_t rank_a = rank(at(a).dtype), rank_b = rank(at(b).dtype);
    return rank_a != rank_b ? rank_a < rank_b : at(a).name < at(b).name;
  });
  return order;
}

void refuse_duplicates(const std::vector<OutTensor>& tensors) {
  std::vector<const OutTensor*> by_name;
  by_name.reserve(tensors.size());
  for (const OutTensor& tensor : tensors) by_name.push_back(&tensor);
  std::sort(by_name.begin(), by_name.end(), [](const auto* a, const auto* b) { return a->name < b->name; });
  const auto twice = std::adjacent_find(by_name.begin(), by_name.end(),
                                        [](const auto* a, const auto* b) { return a->name == b->name; });
  if (twice != by_name.end()) refuse(ErrorCode::kDuplicate, "the name occurs twice", **twice);
}

}  // namespace

int64_t payload_bytes(const OutTensor& tensor) {
  int64_t elements;
  std::optional<int64_t> bytes;
  if (checked_product(tensor.shape, &elements)) bytes = dtype_bytes(tensor.dtype, elements);
  if (!bytes) {
    refuse(ErrorCode::kTooLarge,
           fmt::format("shape {} of {} is not a size in bytes", dims_text(tensor.shape),
                       dtype_name(tensor.dtype)),
           tensor);
  }
  return *bytes;
}

Layout file_layout(std::string name, const std::vector<OutTensor>& tensors,
                   const std::map<std::string, std::string>& metadata) {
  for (const OutTensor& tensor : tensors) check_writable(tensor);
  refuse_duplicates(tensors);
  const std::vector<int64_t> order = file_order(tensors);

  std::string header(kLengthBytes, '\0');
  header += '{';
  if (!metadata.empty()) header += "\"__metadata__\":" + metadata_json(metadata);
  std::vector<int64_t> ends = {0};
  for (int64_t index : order) {
    const OutTensor& tensor = tensors[static_cast<size_t>(index)];
    int64_t end;
    if (!checked_add(ends.back(), payload_bytes(tensor), &end))
      refuse(ErrorCode::kTooLarge, "too many bytes", tensor);
    if (header.back() != '{') header += ',';
    append_json_string(&header, tensor.name, JsonEscapes::kFewest);
    fmt::format_to(
        std::back_inserter(header), ":{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
        dtype_info(tensor.dtype).safetensors, fmt::join(written_shape(tensor), ","), ends.back(), end);
    ends.push_back(end);
  }
  header += '}';
  header.resize(static_cast<size_t>(round_up(static_cast<int64_t>(header.size()), kAlignment)), ' ');

  const auto header_bytes = static_cast<int64_t>(header.size());
  const uint64_t length = header.size() - kLengthBytes;
  if (length > static_cast<uint64_t>(kMaxHeaderBytes)) {
    throw FormatError(ErrorCode::kTooLarge,
                      fmt::format("a safetensors header of {} bytes is over the format's limit of {}", length,
                                  kMaxHeaderBytes),
                      "write more, smaller files (--shard-size)");
  }
  static_assert(std::endian::native == std::endian::little);
  std::memcpy(header.data(), &length, sizeof(length));
  for (int64_t& end : ends) {
    if (!checked_add(end, header_bytes, &end))
      throw FormatError(ErrorCode::kTooLarge, "the file is too large");
  }
  return {std::make_unique<SafetensorsImage>(std::move(name), std::move(header), std::move(ends)), order};
}

}  // namespace milepost::safetensors
