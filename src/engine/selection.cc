#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <unordered_set>

#include "engine/convert_plan.h"
#include "milepost/base/error.h"
#include "milepost/plan/save_plan.h"
#include "milepost/tensor/copy.h"

namespace milepost {
namespace {

constexpr size_t kListed = 50;

std::string joined(const std::vector<std::string>& lines) {
  std::string out;
  for (size_t i = 0; i < lines.size() && i < kListed; ++i) out += (i == 0 ? "" : "; ") + lines[i];
  if (lines.size() > kListed) out += fmt::format("; and {} more", lines.size() - kListed);
  return out;
}

// Names and globs that were of use.
class Matcher {
 public:
  explicit Matcher(const std::vector<std::string>& globs) : globs_(globs), used_(globs.size()) {}
  bool operator()(std::string_view name) {
    bool any = globs_.empty();
    for (size_t i = 0; i < globs_.size(); ++i) {
      if (glob_match(globs_[i], name)) any = used_[i] = true;
    }
    return any;
  }
  void require_all_used(bool is_derived) const {
    const auto unused = std::find(used_.begin(), used_.end(), false);
    if (unused == used_.end()) return;
    const std::string& glob = globs_[static_cast<size_t>(unused - used_.begin())];
    if (is_derived) {
      throw ValueError(fmt::format("none of the names that are written matches '{}'", printable(glob)),
                       "see both sides' names with `milepost keymap`");
    }
    throw ValueError(fmt::format("nothing in the checkpoint matches '{}'", printable(glob)),
                     "see the names with `milepost inspect`");
  }

 private:
  const std::vector<std::string>& globs_;
  std::vector<bool> used_;
};

// Whether other tensors hold scales by which the codes of `name` must be multiplied.
bool is_block_quantised(const Catalog& catalog, std::string_view name) {
  if (catalog.find_tensor(std::string(name) + "_scale_inv")) return true;
  return name.ends_with("_blocks") &&
         catalog.find_tensor(std::string(name.substr(0, name.size() - 7)) + "_scales").has_value();
}

DType target_dtype(const Catalog& catalog, const Catalog::Tensor& tensor, const ConvertOptions& options) {
  if (!options.dtype || !is_model_key(tensor.name) || dtype_info(tensor.dtype).kind != DTypeKind::kFloat) {
    return tensor.dtype;
  }
  if (tensor.dtype != *options.dtype && dtype_size(tensor.dtype) == 1 &&
      is_block_quantised(catalog, tensor.name)) {
    ValueError error(
        "its values are codes that need the scales stored beside them, so a plain cast would give wrong "
        "numbers",
        "convert without a dtype, which keeps codes and scales, or use `milepost export`, which dequantises");
    error.set_key(tensor.name);
    throw error;
  }
  return *options.dtype;
}

// Why the target cannot hold a tensor of this dtype and shape; empty when it can.
std::string_view tensor_objection(CheckpointFormat to, DType dtype, DimsView shape) {
  if (to == CheckpointFormat::kSafetensors) {
    // Safetensors counts the two values of a byte along the last dimension.
    if (dtype == DType::kFloat4E2M1FNx2 && shape.empty()) return "safetensors cannot pair its two values";
    return dtype_info(dtype).safetensors.empty() ? "safetensors has no such dtype" : "";
  }
  return dtype_info(dtype).in_torch ? "" : "torch has no such dtype";
}

// Why the target cannot hold an object; empty when it can.
std::string object_objection(const Checkpoint& source, int64_t object, CheckpointFormat to) {
  if (to == CheckpointFormat::kSafetensors) return "safetensors holds tensors only";
  // Also where the archive is then copied as it is: a pickle that would run code must not be handed on.
  try {
    source.read_object(object);
  } catch (const FormatError& error) {
    if (error.code() != ErrorCode::kRefusedGlobal && error.code() != ErrorCode::kUnsupported) throw;
    return error.summary();
  }
  return {};
}

// What a derived checkpoint's entries are made of.
Selection sources_of(const Checkpoint::Derivation& derived, const Selection& selection) {
  const std::vector<Catalog::Tensor>& sources = (*derived.source)->catalog().tensors();
  std::unordered_set<int64_t> seen;
  Selection out;
  const auto take = [&](int64_t tensor) {
    if (tensor < 0 || !seen.insert(tensor).second) return;
    Selection::Entry entry;
    entry.name = sources[static_cast<size_t>(tensor)].name;
    entry.tensor = tensor;
    out.entries.push_back(entry);
  };
  for (const Selection::Entry& entry : selection.entries) {
    for (const TensorPart& part : derived.map->parts[static_cast<size_t>(entry.tensor)]) {
      take(part.source);
      take(part.scales);
    }
  }
  return out;
}

// Bytes of the stored tensors that the entries come from, each counted once.
int64_t stored_bytes(const Checkpoint& source, const Selection& selection) {
  if (const Checkpoint::Derivation derived = source.derivation(); derived.map != nullptr) {
    return stored_bytes(**derived.source, sources_of(derived, selection));
  }
  int64_t bytes = 0;
  for (const Selection::Entry& entry : selection.entries) {
    if (entry.tensor >= 0)
      bytes += tensor_bytes(source.catalog().tensors()[static_cast<size_t>(entry.tensor)]);
  }
  return bytes;
}

}  // namespace

Selection select_entries(const Checkpoint& source, const ConvertOptions& options) {
  const Catalog& catalog = source.catalog();
  Selection out;
  Matcher matches(options.match);
  std::vector<std::string> objections;
  for (std::string_view name : catalog.names_in_order()) {
    if (!matches(name)) continue;
    Selection::Entry entry;
    entry.name = name;
    std::string objection;
    if (const std::optional<int64_t> tensor = catalog.find_tensor(name)) {
      const Catalog::Tensor& info = catalog.tensors()[static_cast<size_t>(*tensor)];
      entry.tensor = *tensor;
      entry.dtype = target_dtype(catalog, info, options);
      objection = tensor_objection(options.to, entry.dtype, info.shape);
      if (!objection.empty()) objection = fmt::format("{} ({})", objection, dtype_name(entry.dtype));
    } else {
      entry.object = catalog.find_object(name).value();
      objection = object_objection(source, entry.object, options.to);
    }
    if (!objection.empty()) {
      objections.push_back(fmt::format("{}: {}", printable(name), objection));
      continue;
    }
    if (entry.tensor >= 0) {
      ++out.num_tensors;
      out.num_casts += entry.dtype != catalog.tensors()[static_cast<size_t>(entry.tensor)].dtype;
    } else {
      ++out.num_objects;
    }
    out.entries.push_back(entry);
  }
  matches.require_all_used(source.derivation().map != nullptr);
  if (!objections.empty() && !options.skip_unsupported) {
    FormatError error(ErrorCode::kUnsupported,
                      fmt::format("{} of the entries cannot be held by a {} checkpoint: {}",
                                  objections.size(), format_name(options.to), joined(objections)),
                      "leave them out with --skip-unsupported, or choose entries with --match");
    error.set_path(source.path());
    throw error;
  }
  out.skipped = std::move(objections);
  out.bytes_in = stored_bytes(source, out);
  return out;
}

void require_sound(const Checkpoint& source, const Selection& selection) {
  if (const Checkpoint::Derivation derived = source.derivation(); derived.map != nullptr) {
    return require_sound(**derived.source, sources_of(derived, selection));
  }
  const Catalog& catalog = source.catalog();
  std::unordered_set<int64_t> selected;
  const auto require_file = [&](const Location& location, std::string_view name, const std::string& part) {
    if (source.format() != CheckpointFormat::kDcp || location.file == Location::kNoFile) return;
    const Catalog::File& file = catalog.files()[location.file];
    if (file.size_bytes >= 0 || file.path.find('/') != std::string::npos) return;
    FormatError error(ErrorCode::kMissingFile, fmt::format("this data file is missing; it holds {}", part),
                      "restore the file from a copy of the checkpoint");
    error.set_path(join_path(source.path(), file.path)).set_key(name);
    throw error;
  };
  for (const Selection::Entry& entry : selection.entries) {
    if (entry.tensor < 0) {
      require_file(catalog.objects()[static_cast<size_t>(entry.object)].location, entry.name, "this entry");
      continue;
    }
    selected.insert(entry.tensor);
    const Catalog::Tensor& tensor = catalog.tensors()[static_cast<size_t>(entry.tensor)];
    for (int64_t chunk = tensor.first_chunk; chunk < tensor.first_chunk + tensor.num_chunks; ++chunk) {
      const Location& location = catalog.chunk_location(chunk);
      if (location.file != Location::kNoFile && catalog.files()[location.file].size_bytes >= 0) continue;
      require_file(location, entry.name, "the part " + box_text(catalog.chunk_box(tensor, chunk)));
    }
  }
  std::vector<std::string> lines;
  std::optional<ErrorCode> code;
  for (const CoverageFault& fault : check_coverage(catalog)) {
    if (!selected.contains(fault.tensor)) continue;
    if (!code) {
      code = fault.kind == CoverageFault::Kind::kHole      ? ErrorCode::kHole
             : fault.kind == CoverageFault::Kind::kOverlap ? ErrorCode::kOverlap
                                                           : ErrorCode::kOutOfBounds;
    }
    lines.push_back(printable(catalog.tensors()[static_cast<size_t>(fault.tensor)].name) + ": " + fault.text);
  }
  if (!code) return;
  FormatError error(*code, "the chunks do not make whole tensors: " + joined(lines), "see `milepost verify`");
  error.set_path(source.path());
  throw error;
}

}  // namespace milepost
