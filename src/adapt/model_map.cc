// How a table meets a checkpoint: one pass over the expanded table finds each entry's tensors and notes what
// is missing or of another shape; what no entry took is left over, and is either known (left out, with the
// table's reason), a multi-token prediction stage too many, or unknown.
#include "milepost/adapt/model_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "adapt/expression.h"
#include "adapt/key_names.h"
#include "milepost/base/error.h"

namespace milepost::adapt {
namespace {

constexpr std::string_view kZeros = "zeros";
// How many more tensors than the checkpoint a model may have and still be compared name by name.
constexpr int64_t kMaxSurplus = 200'000;
// More stages than any model has.
constexpr int64_t kMaxStages = 64;

// The part of a prefix pattern before its first counter: "model.layers." of "model.layers.{layer}.".
std::string_view fixed_part(std::string_view pattern) { return pattern.substr(0, pattern.find('{')); }

const KeyBlock* mtp_block(const KeyTable& table) {
  const auto it = std::find_if(table.blocks.begin(), table.blocks.end(),
                               [](const KeyBlock& block) { return block.is_mtp; });
  return it == table.blocks.end() ? nullptr : &*it;
}

int64_t num_layers(const flavor::Model& model) {
  return std::visit([](const auto& dims) { return dims.n_layers; }, model.dims);
}

int64_t num_mtp(const flavor::Model& model) {
  const auto* dims = std::get_if<flavor::DeepSeekV3>(&model.dims);
  return dims == nullptr ? 0 : dims->num_mtp_layers;
}

// Which multi-token prediction stage a name belongs to; nullopt for other names.
std::optional<int64_t> mtp_stage(const KeyTable& table, const flavor::Model& model, Naming naming,
                                 std::string_view name) {
  const KeyBlock* block = mtp_block(table);
  if (block == nullptr) return std::nullopt;
  const std::string_view pattern = naming == Naming::kNative ? block->native : block->hf;
  std::optional<int64_t> number = number_after(name, fixed_part(pattern));
  // Hugging Face counts the stages on from the layers.
  if (number && naming == Naming::kHuggingFace) *number -= num_layers(model);
  return number && *number >= 0 ? number : std::nullopt;
}

[[noreturn]] void refuse_dtype(const Catalog::Tensor& tensor, const std::string& what) {
  FormatError error(ErrorCode::kUnsupported,
                    fmt::format("its dtype is {}, {}", dtype_name(tensor.dtype), what),
                    "convert it to a floating dtype with the tool that made it");
  error.set_key(tensor.name);
  throw error;
}

// That of all; float32, or float64 where there is any, when they differ.
DType common_dtype(const TensorsByName& source, const std::vector<int64_t>& tensors) {
  const Catalog::Tensor& first = source.info(tensors[0]);
  const auto is_mixed = [&](int64_t tensor) { return source.info(tensor).dtype != first.dtype; };
  const auto other = std::find_if(tensors.begin(), tensors.end(), is_mixed);
  if (other == tensors.end()) return first.dtype;
  DType dtype = DType::kFloat32;
  for (int64_t tensor : tensors) {
    const Catalog::Tensor& info = source.info(tensor);
    if (dtype_info(info.dtype).kind != DTypeKind::kFloat || is_sub_byte(info.dtype)) {
      const Catalog::Tensor& unlike = info.dtype == first.dtype ? source.info(*other) : first;
      refuse_dtype(info, fmt::format("but that of {}, which it is stacked with, is {}",
                                     printable(unlike.name), dtype_name(unlike.dtype)));
    }
    if (info.dtype == DType::kFloat64) dtype = DType::kFloat64;
  }
  return dtype;
}

// The order of rows that turns native ones into Hugging Face's, or back.
RowOrder rope_order(const KeyEntry& entry, bool to_hf) {
  const int64_t head_dim = entry.count > 0 ? entry.shape[0] / entry.count : 0;
  return {head_dim, to_hf ? 2 : head_dim / 2};
}

class Mapper {
 public:
  Mapper(const Catalog& source, std::span<const int64_t> tensors, const flavor::Model& model, Naming naming)
      : source_(source, tensors), model_(model), table_(key_table(model.model())), naming_(naming) {
    demand_likely_size(static_cast<int64_t>(tensors.size()));
    entries_ = expand(table_, model);
  }

  ModelMap run(Naming target, const MapOptions& options) {
    for (const KeyEntry& entry : entries_) {
      if (entry.row->kind == KeyKind::kOnlyHf) {
        leave_out(entry);
      } else if (naming_ == Naming::kHuggingFace) {
        from_hf(entry);
      } else if (target == Naming::kHuggingFace) {
        to_hf(entry);
      } else {
        keep(entry);
      }
    }
    account_for_rest(options);
    return std::move(out_);
  }

 private:
  // Keeps a forged config.json from making long lists of what is missing.
  void demand_likely_size(int64_t num_tensors) const {
    if (naming_ != Naming::kHuggingFace) return;
    const int64_t likely = num_tensors + kMaxSurplus;
    if (count_names(table_, model_, likely) <= likely) return;
    throw MissingKeyError(
        fmt::format("{} has more than {} tensors, but only {} are there", model_.text(), likely, num_tensors),
        "choose another flavor, or correct the sizes in its config.json");
  }

  // The tensor of that name if it is there; its shape must be `shape`.
  std::optional<int64_t> take(const std::string& name, DimsView shape) {
    const std::optional<int64_t> tensor = source_.find(name);
    if (!tensor) return tensor;
    source_.mark_placed(*tensor);
    const Catalog::Tensor& info = source_.info(*tensor);
    if (!std::equal(shape.begin(), shape.end(), info.shape.begin(), info.shape.end())) {
      ShapeMismatchError error(fmt::format("its shape is {}, but that of {} is {}", dims_text(info.shape),
                                           model_.text(), dims_text(shape)),
                               model_.name.empty()
                                   ? "give the config.json that goes with it (--config), or its --flavor"
                                   : "choose another flavor, or give the model's config.json");
      error.set_key(name);
      throw error;
    }
    return tensor;
  }

  // Elements that fill no whole bytes cannot be taken apart.
  void demand_divisible(const KeyEntry& entry, const std::vector<int64_t>& tensors) const {
    if (entry.row->kind == KeyKind::kSame) return;
    for (int64_t tensor : tensors) {
      const Catalog::Tensor& info = source_.info(tensor);
      if (is_sub_byte(info.dtype)) refuse_dtype(info, "whose rows cannot be taken apart");
    }
  }

  void add(const std::string& name, const std::vector<int64_t>& tensors, DimsView shape,
           std::vector<TensorPart> parts) {
    out_.map.add(name, common_dtype(source_, tensors), shape, std::move(parts));
  }

  void from_hf(const KeyEntry& entry) {
    std::vector<int64_t> tensors;
    const Dims shape = entry.hf_shape();
    for (const std::string& name : entry.hf) {
      if (const std::optional<int64_t> tensor = take(name, shape)) {
        tensors.push_back(*tensor);
      } else if (entry.absent.empty()) {
        missing_.push_back(name);
      }
    }
    if (tensors.empty() && !entry.absent.empty()) return stand_in(entry);
    if (tensors.size() != entry.hf.size()) return;
    demand_divisible(entry, tensors);
    std::vector<TensorPart> parts;
    for (size_t i = 0; i < tensors.size(); ++i) {
      TensorPart part = whole_part(tensors[i], shape);
      if (entry.row->kind == KeyKind::kExperts) {
        part.first_row = static_cast<int64_t>(i);
        part.num_rows = 1;
      } else if (entry.row->kind == KeyKind::kRopeRows) {
        part.order = rope_order(entry, false);
      }
      parts.push_back(std::move(part));
    }
    add(entry.native, tensors, entry.shape, std::move(parts));
  }

  void stand_in(const KeyEntry& entry) {
    if (entry.absent != kZeros) {
      if (const std::optional<int64_t> tensor = take(entry.absent, entry.shape)) {
        add(entry.native, {*tensor}, entry.shape, {whole_part(*tensor, entry.shape)});
      }  // else it is missing for its own entry as well
      return;
    }
    TensorPart zeros;
    zeros.values = TensorPart::Values::kZeros;
    zeros.num_rows = num_rows(entry.shape);
    out_.map.add(entry.native, DType::kFloat32, entry.shape, {zeros});
    if (num_zeros_++ == 0) first_zeros_ = entry.native;
  }

  void to_hf(const KeyEntry& entry) {
    const std::optional<int64_t> tensor = take(entry.native, entry.shape);
    if (!tensor) {
      if (!entry.export_absent) missing_.push_back(entry.native);
      return;
    }
    if (entry.export_absent) {
      out_.left_out.push_back({entry.native, std::string(entry.row->note)});
      return;
    }
    demand_divisible(entry, {*tensor});
    const Dims shape = entry.hf_shape();
    for (size_t i = 0; i < entry.hf.size(); ++i) {
      TensorPart part = whole_part(*tensor, shape);
      if (entry.row->kind == KeyKind::kExperts) {
        part.origin.assign(entry.shape.size(), 0);
        part.origin[0] = static_cast<int64_t>(i);
      } else if (entry.row->kind == KeyKind::kRopeRows) {
        part.order = rope_order(entry, true);
      }
      add(entry.hf[i], {*tensor}, shape, {std::move(part)});
    }
  }

  void keep(const KeyEntry& entry) {
    if (const std::optional<int64_t> tensor = take(entry.native, entry.shape)) {
      add(entry.native, {*tensor}, entry.shape, {whole_part(*tensor, entry.shape)});
    } else if (!entry.export_absent) {
      missing_.push_back(entry.native);
    }
  }

  void leave_out(const KeyEntry& entry) {
    if (naming_ != Naming::kHuggingFace) return;
    if (const std::optional<int64_t> tensor = source_.find(entry.hf[0])) {
      source_.mark_placed(*tensor);
      out_.left_out.push_back({entry.hf[0], std::string(entry.row->note)});
    }
  }

  void account_for_rest(const MapOptions& options) {
    if (!missing_.empty()) {
      throw MissingKeyError(fmt::format("{} of the tensors of {} {} missing: {}", missing_.size(),
                                        model_.text(), missing_.size() == 1 ? "is" : "are", listed(missing_)),
                            "complete the checkpoint, or choose another flavor");
    }
    std::vector<std::string> unknown;
    for (int64_t tensor : source_.unplaced()) {
      const std::string& name = source_.info(tensor).name;
      if (const std::optional<int64_t> stage = mtp_stage(table_, model_, naming_, name)) {
        if (!options.drop_extra_mtp) refuse_stage(*stage);
        out_.left_out.push_back({name, "a multi-token prediction stage that was not asked for"});
        continue;
      }
      if (options.drop_unknown) out_.left_out.push_back({name, "has no place in the model"});
      unknown.push_back(name);
    }
    if (!unknown.empty() && !options.drop_unknown) {
      throw FormatError(ErrorCode::kUnsupported,
                        fmt::format("{} of the tensors {} no place in {}: {}", unknown.size(),
                                    unknown.size() == 1 ? "has" : "have", model_.text(), listed(unknown)),
                        "choose another flavor, or leave them out with --skip-unsupported");
    }
    if (num_zeros_ > 0) {
      out_.notes.push_back(
          fmt::format("{} tensors that the source does not have are filled with zeros, such as {}",
                      num_zeros_, first_zeros_));
    }
  }

  [[noreturn]] void refuse_stage(int64_t stage) const {
    const int64_t owned = num_mtp(model_);
    std::string hint = fmt::format("--mtp-layers {} leaves it out", owned);
    if (stage < kMaxStages) hint = fmt::format("--mtp-layers {} takes it over, {}", stage + 1, hint);
    throw ValueError(
        fmt::format("Checkpoint MTP stage {} is not present in the model config, which owns {} stage(s).",
                    stage, owned),
        std::move(hint));
  }

  TensorsByName source_;
  const flavor::Model& model_;
  const KeyTable& table_;
  Naming naming_;
  std::vector<KeyEntry> entries_;
  ModelMap out_;
  std::vector<std::string> missing_;
  int64_t num_zeros_ = 0;
  std::string first_zeros_;
};

struct LayerNames {
  int64_t native = 0, hf = 0;
};

// How many names of the first layer are there: they tell when the embeddings are missing.
LayerNames count_layer_names(const KeyTable& table, const TensorsByName& names) {
  const KeyBlock& block = table.blocks[0];
  Variables first;
  first.set(block.counter, 0);
  first.set("expert", 0);
  const auto is_there = [&](std::string_view prefix, std::string_view pattern) {
    constexpr std::string_view kBlock = "{block}";
    return pattern.starts_with(kBlock) &&
           names.find(fill(prefix, first) + fill(pattern.substr(kBlock.size()), first));
  };
  LayerNames found;
  for (const KeyRow& row : table.rows) {
    if (is_there(block.native, row.native)) ++found.native;
    if (is_there(block.hf, row.hf)) ++found.hf;
  }
  return found;
}

}  // namespace

ModelMap import_map(const Catalog& source, std::span<const int64_t> tensors, const flavor::Model& model,
                    const MapOptions& options) {
  return Mapper(source, tensors, model, Naming::kHuggingFace).run(Naming::kNative, options);
}

ModelMap export_map(const Catalog& source, std::span<const int64_t> tensors, const flavor::Model& model,
                    const MapOptions& options) {
  return Mapper(source, tensors, model, Naming::kNative).run(Naming::kHuggingFace, options);
}

ModelMap native_map(const Catalog& source, std::span<const int64_t> tensors, const flavor::Model& model,
                    const MapOptions& options) {
  return Mapper(source, tensors, model, Naming::kNative).run(Naming::kNative, options);
}

Naming find_naming(const Catalog& catalog, std::span<const int64_t> tensors) {
  const TensorsByName names(catalog, tensors);
  int64_t native = 1, hf = 1;  // a single name of a layer may be by chance
  for (std::string_view model : flavor::model_names()) {
    const KeyTable& table = key_table(model);
    if (names.find(table.rows[0].native)) return Naming::kNative;
    if (names.find(table.rows[0].hf)) return Naming::kHuggingFace;
    const LayerNames found = count_layer_names(table, names);
    native = std::max(native, found.native);
    hf = std::max(hf, found.hf);
  }
  if (native == hf) return Naming::kUnknown;
  return native > hf ? Naming::kNative : Naming::kHuggingFace;
}

int64_t count_mtp_stages(const Catalog& catalog, std::span<const int64_t> tensors, const flavor::Model& model,
                         Naming naming) {
  const KeyTable& table = key_table(model.model());
  int64_t count = 0;
  for (int64_t tensor : tensors) {
    const std::string& name = catalog.tensors()[static_cast<size_t>(tensor)].name;
    if (const std::optional<int64_t> stage = mtp_stage(table, model, naming, name))
      count = std::max(count, std::min(*stage, std::numeric_limits<int64_t>::max() - 1) + 1);
  }
  return count;
}

}  // namespace milepost::adapt
