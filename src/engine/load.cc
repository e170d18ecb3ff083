// A load is: match every target with the catalog and report all differences at once; cut the targets into
// pieces; order the pieces by where their bytes lie (the plan); read them in parallel.
#include "milepost/engine/load.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <unordered_set>

#include "engine/report_progress.h"
#include "milepost/base/error.h"
#include "milepost/base/thread_pool.h"
#include "milepost/engine/reader.h"
#include "milepost/tensor/copy.h"

namespace milepost {
namespace {

constexpr int64_t kPieceBytes = 4 << 20;  // of the stored dtype
constexpr int64_t kTaskBytes = 1 << 20;   // small pieces are handed out together up to this size

using Piece = LoadPlan::Piece;

bool is_row_major(const LoadTarget& target) {
  if (target.strides.empty()) return true;
  const Dims dense = row_major_strides(target.box.sizes);
  if (target.strides.size() != dense.size()) {
    ValueError error(
        fmt::format("{} strides are given for {} dimensions", target.strides.size(), dense.size()));
    error.set_key(target.name);
    throw error;
  }
  for (size_t d = 0; d < dense.size(); ++d) {
    if (target.box.sizes[d] > 1 && target.strides[d] != dense[d]) return false;
  }
  return true;
}

std::string joined(const std::vector<std::string>& texts) {
  std::string out;
  for (size_t i = 0; i < texts.size(); ++i) {
    if (i == 50) return out + fmt::format(", and {} more", texts.size() - i);
    out += (i == 0 ? "" : ", ") + texts[i];
  }
  return out;
}

// Collects what does not fit between targets and catalog, and throws it as one error.
class Differences {
 public:
  void shape(const Catalog::Tensor& saved, const LoadTarget& target) {
    shapes_.push_back(fmt::format("{}: saved {}, wanted {}", printable(saved.name), dims_text(saved.shape),
                                  dims_text(target.shape)));
  }
  void cast(const Catalog::Tensor& saved, const LoadTarget& target) {
    (cast_is_supported(saved.dtype, target.dtype) ? lossy_casts_ : unsupported_casts_)
        .push_back(fmt::format("{}: saved {}, wanted {}", printable(saved.name), dtype_name(saved.dtype),
                               dtype_name(target.dtype)));
  }
  void box(const LoadTarget& target) {
    boxes_.push_back(
        fmt::format("{}: {} of {}", printable(target.name), box_text(target.box), dims_text(target.shape)));
  }

  void throw_if_any(const std::string& path, const LoadReport& report, const LoadOptions& options) const {
    std::vector<std::string> parts;
    const auto add = [&parts](std::string_view what, const std::vector<std::string>& list) {
      if (!list.empty()) parts.push_back(fmt::format("{}: {}", what, joined(list)));
    };
    add("size mismatch", shapes_);
    add("wanted boxes outside their tensor", boxes_);
    add("unsupported cast", unsupported_casts_);
    add("cast would lose information", lossy_casts_);
    const bool missing = !options.allow_missing && !report.missing.empty();
    const bool unexpected = options.refuse_unexpected && !report.unexpected.empty();
    if (parts.empty() && !missing && !unexpected) return;
    add("missing in the checkpoint", printable_all(report.missing));
    add("unexpected in the checkpoint", printable_all(report.unexpected));
    std::string text = "the checkpoint does not fit what is to be loaded: ";
    for (size_t i = 0; i < parts.size(); ++i) text += (i == 0 ? "" : "; ") + parts[i];
    if (!shapes_.empty())
      throw with_path(ShapeMismatchError(text, "load with the configuration that saved it"), path);
    if (!boxes_.empty()) throw with_path(ValueError(text), path);
    if (!unsupported_casts_.empty()) {
      const char* hint = "only floating-point tensors are cast; save these in the dtype that is wanted";
      throw with_path(ValueError(text, hint, ErrorCode::kUnsupported), path);
    }
    if (!lossy_casts_.empty())
      throw with_path(ValueError(text, "allow lossy casts", ErrorCode::kLossyCast), path);
    throw with_path(MissingKeyError(text, "allow missing entries to keep their initial values"), path);
  }

 private:
  template <typename E>
  static E with_path(E error, const std::string& path) {
    error.set_path(path);
    return error;
  }
  static std::vector<std::string> printable_all(std::vector<std::string> names) {
    for (std::string& name : names) name = printable(name);
    return names;
  }
  std::vector<std::string> shapes_, boxes_, unsupported_casts_, lossy_casts_;
};

void add_pieces(const Catalog& catalog, const LoadTarget& target, int64_t target_index, int64_t tensor,
                std::vector<Piece>* pieces) {
  const Catalog::Tensor& info = catalog.tensors()[static_cast<size_t>(tensor)];
  const int64_t elements = target.box.num_elements();
  if (elements == 0) return;
  Piece piece{target_index, tensor, 0, -1, Location::kNoFile, 0};
  if (info.num_chunks > 0) {
    const Location& location = catalog.chunk_location(info.first_chunk);
    piece.file = location.file;
    piece.offset = location.offset;
  }
  if (!is_row_major(target)) {
    pieces->push_back(piece);
    return;
  }
  const int64_t size = is_sub_byte(info.dtype) ? 1 : dtype_size(info.dtype);
  const int64_t total = is_sub_byte(info.dtype) ? tensor_bytes(info) : elements;
  for (int64_t begin = 0; begin < total; begin += kPieceBytes / size) {
    piece.begin = begin;
    piece.end = std::min(total, begin + kPieceBytes / size);
    pieces->push_back(piece);
  }
}

// Throws for what would write outside the caller's memory.
void require_usable(const Catalog::Tensor& saved, const LoadTarget& target) {
  const bool dense = is_row_major(target);
  if (!is_sub_byte(saved.dtype) || (dense && target.box == Box::whole(saved.shape))) return;
  ValueError error(fmt::format("{} tensors can only be loaded whole and row-major", dtype_name(saved.dtype)));
  error.set_key(target.name);
  throw error;
}

bool is_castable(DType saved, DType wanted, const LoadOptions& options) {
  if (saved == wanted) return true;
  return cast_is_supported(saved, wanted) && (options.allow_lossy_cast || cast_is_lossless(saved, wanted));
}

// Fills the report but for bytes_read. Throws when checkpoint and targets do not fit.
std::vector<Piece> match(const Checkpoint& checkpoint, const std::vector<LoadTarget>& targets,
                         const LoadOptions& options, LoadReport& report) {
  const Catalog& catalog = checkpoint.catalog();
  Differences differences;
  std::vector<Piece> pieces;
  std::unordered_set<std::string_view> wanted;
  for (size_t i = 0; i < targets.size(); ++i) {
    const LoadTarget& target = targets[i];
    const bool first = wanted.insert(target.name).second;
    const std::optional<int64_t> tensor = catalog.find_tensor(target.name);
    if (!tensor) {
      if (first) report.missing.push_back(target.name);
      continue;
    }
    const Catalog::Tensor& saved = catalog.tensors()[static_cast<size_t>(*tensor)];
    if (saved.shape != target.shape) {
      differences.shape(saved, target);
    } else if (!box_fits(target.box, saved.shape)) {
      differences.box(target);
    } else if (!is_castable(saved.dtype, target.dtype, options)) {
      differences.cast(saved, target);
    } else {
      require_usable(saved, target);
      add_pieces(catalog, target, static_cast<int64_t>(i), *tensor, &pieces);
      report.bytes_wanted += target.box.num_elements() * dtype_info(saved.dtype).bits / 8;
    }
  }
  for (std::string_view name : catalog.names_in_order()) {
    if (!wanted.contains(name) && catalog.find_tensor(name)) report.unexpected.emplace_back(name);
  }
  differences.throw_if_any(checkpoint.path(), report, options);
  std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
    return std::tie(a.file, a.offset, a.target, a.begin) < std::tie(b.file, b.offset, b.target, b.begin);
  });
  return pieces;
}

}  // namespace

class LoadPlan::Worker {
 public:
  explicit Worker(const std::shared_ptr<const Checkpoint>& checkpoint) : reader_(checkpoint) {}

  // Returns the stored bytes that it was about.
  int64_t read(const LoadTarget& target, const Piece& piece, const Read& what) {
    const DType stored = reader_.checkpoint().catalog().tensors()[static_cast<size_t>(piece.tensor)].dtype;
    const int64_t size = is_sub_byte(stored) ? 1 : dtype_size(stored);
    if (piece.end < 0) {
      read_strided(target, piece.tensor, stored);
      return target.box.num_elements() * size;
    }
    const int64_t out_size = is_sub_byte(target.dtype) ? 1 : dtype_size(target.dtype);
    std::byte* const into = what.into != nullptr ? what.into : target.data + what.begin * out_size;
    const int64_t count = what.end - what.begin;
    const bool is_cast = stored != target.dtype;
    if (is_cast && scratch_.size() == 0) scratch_ = AlignedBuffer(kPieceBytes);
    std::byte* const read_into = is_cast ? scratch_.data() : into;
    reader_.read_linear(piece.tensor, target.box, what.begin * size, what.end * size, read_into);
    if (is_cast) cast(into, target.dtype, scratch_.data(), stored, count);
    return count * size;
  }

  int64_t bytes_read() const { return reader_.bytes_read(); }

 private:
  void read_strided(const LoadTarget& target, int64_t tensor, DType stored) {
    const int64_t size = dtype_size(stored), out_size = dtype_size(target.dtype);
    Dims strides = target.strides;
    for (int64_t& stride : strides) stride *= out_size;
    if (stored == target.dtype) return reader_.read(tensor, target.box, target.data, strides);
    // A cast into strided memory: pieces of the box are read dense, cast, and placed.
    const int64_t at_once = kPieceBytes / (size + out_size), total = target.box.num_elements();
    if (scratch_.size() == 0) scratch_ = AlignedBuffer(kPieceBytes);
    std::byte* made = scratch_.data() + at_once * size;
    std::vector<Box> boxes;
    for (int64_t begin = 0; begin < total; begin += at_once) {
      split_linear_range(target.box.sizes, begin, std::min(total, begin + at_once), &boxes);
      const std::byte* next = made;
      const int64_t count = std::min(total, begin + at_once) - begin;
      reader_.read_linear(tensor, target.box, begin * size, (begin + count) * size, scratch_.data());
      cast(made, target.dtype, scratch_.data(), stored, count);
      for (const Box& box : boxes) {
        int64_t place = 0;
        for (size_t d = 0; d < box.offsets.size(); ++d) place += box.offsets[d] * strides[d];
        Dims dense = row_major_strides(box.sizes);
        for (int64_t& stride : dense) stride *= out_size;
        copy_strided(target.data + place, strides, next, dense, box.sizes, out_size);
        next += box.num_elements() * out_size;
      }
    }
  }

  TensorReader reader_;
  AlignedBuffer scratch_;
};

LoadPlan::LoadPlan(std::shared_ptr<const Checkpoint> checkpoint, std::vector<LoadTarget> targets,
                   const LoadOptions& options)
    : checkpoint_(std::move(checkpoint)),
      targets_(std::move(targets)),
      pieces_(match(*checkpoint_, targets_, options, report_)),
      progress_(options.progress),
      num_threads_(options.num_threads > 0 ? options.num_threads : default_num_threads()) {
  expect_bytes(progress_, report_.bytes_wanted);
}

LoadPlan::~LoadPlan() = default;
LoadPlan::LoadPlan(LoadPlan&&) noexcept = default;

int64_t LoadPlan::stored_size(const Piece& piece) const {
  const DType dtype = checkpoint_->catalog().tensors()[static_cast<size_t>(piece.tensor)].dtype;
  return is_sub_byte(dtype) ? 1 : dtype_size(dtype);
}

int64_t LoadPlan::memory_size(const Piece& piece) const {
  const DType dtype = targets_[static_cast<size_t>(piece.target)].dtype;
  return is_sub_byte(dtype) ? 1 : dtype_size(dtype);
}

void LoadPlan::read(std::span<const Read> reads) {
  // Consecutive small pieces are one task.
  std::vector<size_t> starts;
  int64_t bytes = kTaskBytes;
  for (size_t i = 0; i < reads.size(); ++i) {
    const Piece& piece = pieces_[reads[i].piece];
    const int64_t size = piece.end < 0 ? kTaskBytes : (reads[i].end - reads[i].begin) * stored_size(piece);
    if (bytes + size > kTaskBytes) {
      starts.push_back(i);
      bytes = 0;
    }
    bytes += size;
  }
  starts.push_back(reads.size());
  const auto num_tasks = static_cast<int64_t>(starts.size()) - 1;
  ThreadPool pool(static_cast<int>(std::min<int64_t>(num_threads_, std::max<int64_t>(1, num_tasks))));
  workers_.resize(std::max(workers_.size(), static_cast<size_t>(pool.num_threads())));
  pool.run(num_tasks, [&](int64_t task, int index) {
    auto& worker = workers_[static_cast<size_t>(index)];
    if (worker == nullptr) worker = std::make_unique<Worker>(checkpoint_);
    for (size_t i = starts[static_cast<size_t>(task)]; i < starts[static_cast<size_t>(task) + 1]; ++i) {
      const Piece& piece = pieces_[reads[i].piece];
      advance(progress_, worker->read(targets_[static_cast<size_t>(piece.target)], piece, reads[i]));
    }
  });
}

LoadReport LoadPlan::report() const {
  LoadReport report = report_;
  for (const auto& worker : workers_) report.bytes_read += worker == nullptr ? 0 : worker->bytes_read();
  return report;
}

LoadReport load(const std::shared_ptr<const Checkpoint>& checkpoint, const std::vector<LoadTarget>& targets,
                const LoadOptions& options) {
  LoadPlan plan(checkpoint, targets, options);
  std::vector<LoadPlan::Read> all;
  for (size_t i = 0; i < plan.pieces().size(); ++i) {
    all.push_back({i, plan.pieces()[i].begin, plan.pieces()[i].end});
  }
  plan.read(all);
  return plan.report();
}

}  // namespace milepost
