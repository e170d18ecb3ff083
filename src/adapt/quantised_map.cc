#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "adapt/key_names.h"
#include "milepost/adapt/model_map.h"
#include "milepost/base/checked_math.h"
#include "milepost/base/error.h"

namespace milepost::adapt {
namespace {

constexpr std::string_view kScaleInv = "_scale_inv", kBlocks = "_blocks", kScales = "_scales";
constexpr int64_t kFp8ExportBlock = 128;

bool is_fp8(DType dtype) {
  return dtype == DType::kFloat8E4M3FN || dtype == DType::kFloat8E5M2 || dtype == DType::kFloat8E4M3FNUZ ||
         dtype == DType::kFloat8E5M2FNUZ;
}

std::string scale_name(const std::string& codes) { return codes + std::string(kScaleInv); }

// The name of the exponents that go with `X_blocks`; empty for other names.
std::string exponents_name(std::string_view name) {
  if (!name.ends_with(kBlocks)) return {};
  return std::string(name.substr(0, name.size() - kBlocks.size())) + std::string(kScales);
}

void require_shape(const Catalog::Tensor& scales, DimsView wanted, const Catalog::Tensor& codes) {
  if (std::equal(wanted.begin(), wanted.end(), scales.shape.begin(), scales.shape.end())) return;
  ShapeMismatchError error(
      fmt::format("these scales are {}, but the codes {} {} need {}", dims_text(scales.shape),
                  printable(codes.name), dims_text(codes.shape), dims_text(wanted)),
      "check `weight_block_size` in config.json, and that both files are of one release");
  error.set_key(scales.name);
  throw error;
}

// Scales that are codes themselves would be taken for plain numbers.
void require_float(const Catalog::Tensor& scales, const Catalog::Tensor& codes) {
  if (dtype_info(scales.dtype).kind == DTypeKind::kFloat && !is_sub_byte(scales.dtype) &&
      !is_fp8(scales.dtype))
    return;
  FormatError error(ErrorCode::kUnsupported,
                    fmt::format("these scales of {} are {}, but must be plain floating numbers",
                                printable(codes.name), dtype_name(scales.dtype)),
                    "dequantise the checkpoint with the tool that made it");
  error.set_key(scales.name);
  throw error;
}

// What an fp8 export quantises, and narrows where it does not.
bool is_plain_float(DType dtype) {
  return dtype_info(dtype).kind == DTypeKind::kFloat && !is_sub_byte(dtype) && dtype_size(dtype) > 1;
}

TensorPart block_scaled(const TensorsByName& source, int64_t codes, int64_t block) {
  const Catalog::Tensor& info = source.info(codes);
  const std::optional<int64_t> scales = source.find(scale_name(info.name));
  if (!scales) {
    MissingKeyError error(fmt::format("it holds {} codes, whose scales {} are missing",
                                      dtype_name(info.dtype), printable(scale_name(info.name))),
                          "complete the checkpoint; without them the values are unknown");
    error.set_key(info.name);
    throw error;
  }
  if (info.shape.size() != 2) {
    FormatError error(
        ErrorCode::kUnsupported,
        fmt::format("block scales go with matrices, but its shape is {}", dims_text(info.shape)),
        "dequantise it with the tool that made it");
    error.set_key(info.name);
    throw error;
  }
  require_float(source.info(*scales), info);
  require_shape(source.info(*scales), Dims{ceil_div(info.shape[0], block), ceil_div(info.shape[1], block)},
                info);
  TensorPart part = whole_part(codes, info.shape);
  part.values = TensorPart::Values::kBlockScaled;
  part.scales = *scales;
  part.block = block;
  return part;
}

// Adds `X` for `X_blocks`.
void add_mxfp4(const TensorsByName& source, int64_t codes, int64_t scales, DType dtype, KeyMap* map) {
  const Catalog::Tensor& info = source.info(codes);
  const Catalog::Tensor& exponents = source.info(scales);
  if (info.shape.size() < 2 || info.dtype != DType::kUInt8 || exponents.dtype != DType::kUInt8) {
    FormatError error(ErrorCode::kUnsupported,
                      "MXFP4 codes and exponents are uint8 of two or more dimensions");
    error.set_key(info.name);
    throw error;
  }
  require_shape(exponents, DimsView(info.shape).first(info.shape.size() - 1), info);
  Dims shape(info.shape.begin(), info.shape.end() - 1);
  if (!checked_mul(info.shape.back(), shape.back(), &shape.back()) ||
      !checked_mul(shape.back(), 2, &shape.back())) {
    FormatError error(ErrorCode::kTooLarge, "the number of values overflows");
    error.set_key(info.name);
    throw error;
  }
  TensorPart part = whole_part(codes, shape);
  part.values = TensorPart::Values::kMxfp4;
  part.scales = scales;
  map->add(info.name.substr(0, info.name.size() - kBlocks.size()), dtype, shape, {std::move(part)});
}

}  // namespace

bool has_quantised(const Catalog& catalog, std::span<const int64_t> tensors) {
  const TensorsByName names(catalog, tensors);
  return std::any_of(tensors.begin(), tensors.end(), [&](int64_t tensor) {
    const Catalog::Tensor& info = names.info(tensor);
    const std::string exponents = exponents_name(info.name);
    return is_fp8(info.dtype) || names.find(scale_name(info.name)) ||
           (!exponents.empty() && names.find(exponents));
  });
}

ModelMap dequantised_map(const Catalog& source, std::span<const int64_t> tensors, DType dtype,
                         std::array<int64_t, 2> block) {
  if (block[0] != block[1] || block[0] < 1) {
    throw FormatError(
        ErrorCode::kUnsupported,
        fmt::format("blocks of {} x {} are not supported: they must be square", block[0], block[1]),
        "check `weight_block_size` in config.json, or dequantise it with the tool that made it");
  }
  if (dtype != DType::kFloat32 && dtype != DType::kBFloat16 && dtype != DType::kFloat16) {
    throw ValueError(fmt::format("codes cannot be dequantised to {}", dtype_name(dtype)),
                     "choose float32, bfloat16 or float16");
  }
  TensorsByName names(source, tensors);
  ModelMap out;
  std::unordered_set<int64_t> scales;
  int64_t num_codes = 0;
  for (int64_t tensor : tensors) {
    const Catalog::Tensor& info = names.info(tensor);
    if (is_fp8(info.dtype)) {
      scales.insert(block_scaled(names, tensor, block[0]).scales);
    } else if (const std::string exponents = exponents_name(info.name); !exponents.empty()) {
      if (const std::optional<int64_t> found = names.find(exponents)) scales.insert(*found);
    }
  }
  for (int64_t tensor : tensors) {
    const Catalog::Tensor& info = names.info(tensor);
    if (scales.contains(tensor)) continue;
    const std::string exponents = exponents_name(info.name);
    const std::optional<int64_t> found = exponents.empty() ? std::nullopt : names.find(exponents);
    if (is_fp8(info.dtype)) {
      out.map.add(info.name, dtype, info.shape, {block_scaled(names, tensor, block[0])});
      ++num_codes;
    } else if (found) {
      add_mxfp4(names, tensor, *found, dtype, &out.map);
      ++num_codes;
    } else {
      out.map.add(info.name, info.dtype, info.shape, {whole_part(tensor, info.shape)});
    }
  }
  out.notes.push_back(
      fmt::format("{} quantised tensors are dequantised to {}", num_codes, dtype_name(dtype)));
  return out;
}

KeyMap fp8_map(const Catalog& exported, const flavor::Model& model, DType dtype) {
  std::unordered_set<std::string> quantised, in_float32;
  for (const KeyEntry& entry : expand(key_table(model.model()), model)) {
    if (entry.row->fp8) quantised.insert(entry.hf.begin(), entry.hf.end());
    if (entry.row->is_float32) in_float32.insert(entry.hf.begin(), entry.hf.end());
  }
  KeyMap map;
  for (size_t i = 0; i < exported.tensors().size(); ++i) {
    const Catalog::Tensor& info = exported.tensors()[i];
    TensorPart part = whole_part(static_cast<int64_t>(i), info.shape);
    if (!quantised.contains(info.name) || info.shape.size() != 2 || !is_plain_float(info.dtype)) {
      const DType wanted = in_float32.contains(info.name) ? DType::kFloat32 : dtype;
      map.add(info.name, is_plain_float(info.dtype) ? wanted : info.dtype, info.shape, {std::move(part)});
      continue;
    }
    part.block = kFp8ExportBlock;
    part.values = TensorPart::Values::kFp8Codes;
    map.add(info.name, DType::kFloat8E4M3FN, info.shape, {part});
    part.values = TensorPart::Values::kFp8Scales;
    const Dims blocks{ceil_div(info.shape[0], part.block), ceil_div(info.shape[1], part.block)};
    part.num_rows = blocks[0];
    map.add(scale_name(info.name), DType::kFloat32, blocks, {part});
  }
  return map;
}

}  // namespace milepost::adapt
