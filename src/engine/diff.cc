// How two checkpoints are compared:
//
// 1. Names are paired. What only one side has, and pairs that differ in kind, shape or dtype, are differences
// already.
// 2. The elements of the other pairs are cut into pieces of at most 1 MiB a side, and the pieces are compared
// in parallel,
//    so that one large tensor keeps every thread busy. Each piece has a slot for its result.
// 3. The slots of a pair are merged in order: the result does not depend on which thread came first.
// 4. Objects are compared by their JSON, which has one spelling for a value.
#include "milepost/engine/diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <unordered_set>

#include "engine/diff_elements.h"
#include "engine/element_values.h"
#include "engine/report_progress.h"
#include "milepost/base/aligned_buffer.h"
#include "milepost/base/error.h"
#include "milepost/base/thread_pool.h"
#include "milepost/catalog/layout.h"
#include "milepost/engine/reader.h"
#include "milepost/engine/scan.h"

namespace milepost {
namespace {

constexpr int64_t kPieceBytes = int64_t{1} << 20;
constexpr int64_t kWindowBytes = int64_t{2} << 20;
constexpr size_t kMaxShownJson = 200;
constexpr int64_t kMaxObjectBytes = int64_t{1} << 30;

// Two tensors of one name whose values are compared, and the place of their result.
struct Pair {
  int64_t a, b;  // tensors of the catalogs
  DType dtype_a, dtype_b;
  Box box;
  size_t slot;  // of the report in A's order
  int64_t first_piece = 0, num_pieces = 0;
};

struct Piece {
  int64_t pair, begin, end;  // elements
};

struct Worker {
  TensorReader a, b;
  AlignedBuffer buffer_a, buffer_b;

  Worker(const std::shared_ptr<const Checkpoint>& checkpoint_a,
         const std::shared_ptr<const Checkpoint>& checkpoint_b)
      : a(checkpoint_a, kWindowBytes),
        b(checkpoint_b, kWindowBytes),
        buffer_a(kPieceBytes),
        buffer_b(kPieceBytes) {}
};

// 6-bit types have no elements of their own: their bytes are compared.
DType unit_of(DType dtype) { return is_sub_byte(dtype) ? DType::kUInt8 : dtype; }

std::string tensor_text(const Catalog::Tensor& tensor) {
  return fmt::format("{} {}", dims_text(tensor.shape), dtype_name(tensor.dtype));
}

std::string shortened(const std::string& json) {
  return json.size() <= kMaxShownJson ? json : json.substr(0, kMaxShownJson) + "...";
}

class Comparison {
 public:
  Comparison(const std::shared_ptr<const Checkpoint>& a, const std::shared_ptr<const Checkpoint>& b,
             const DiffOptions& options)
      : a_(a), b_(b), options_(options), matched_(options.match.size()) {
    if (options.rtol || options.atol) tolerance_ = {options.rtol.value_or(0), options.atol.value_or(0)};
  }

  DiffReport run() {
    pair_names();
    require_all_matched();
    cut_into_pieces();
    const int64_t affordable = options_.max_memory_bytes / (2 * (kPieceBytes + kWindowBytes));
    const int64_t wanted = options_.num_threads > 0 ? options_.num_threads : default_num_threads();
    ThreadPool pool(static_cast<int>(std::clamp<int64_t>(wanted, 1, std::max<int64_t>(affordable, 1))));
    compare_objects(pool);
    compare_pieces(pool);
    merge_pieces();
    for (std::unique_ptr<Difference>& slot : slots_) {
      if (slot) report_.differences.push_back(std::move(*slot));
    }
    return std::move(report_);
  }

 private:
  bool wanted(std::string_view name) {
    bool any = options_.match.empty();
    for (size_t i = 0; i < options_.match.size(); ++i) {
      if (glob_match(options_.match[i], name)) any = matched_[i] = true;
    }
    return any;
  }

  // A slip in a glob must not pass for equality.
  void require_all_matched() const {
    for (size_t i = 0; i < matched_.size(); ++i) {
      if (matched_[i]) continue;
      throw ValueError(fmt::format("nothing in either checkpoint matches '{}'", printable(options_.match[i])),
                       "see the names with `milepost inspect`");
    }
  }

  void put(size_t slot, Difference::Kind kind, std::string_view name, std::string a, std::string b) {
    slots_[slot] = std::make_unique<Difference>();
    slots_[slot]->kind = kind;
    slots_[slot]->name = name;
    slots_[slot]->a = std::move(a);
    slots_[slot]->b = std::move(b);
  }

  std::string entry_text(const Catalog& catalog, std::string_view name) const {
    const std::optional<int64_t> tensor = catalog.find_tensor(name);
    return tensor ? tensor_text(catalog.tensors()[static_cast<size_t>(*tensor)]) : "object";
  }

  // Step 1.
  void pair_names() {
    const Catalog &a = a_->catalog(), &b = b_->catalog();
    for (const std::string_view name : a.names_in_order()) {
      if (!wanted(name)) continue;
      const size_t slot = slots_.size();
      slots_.emplace_back();
      const std::optional<int64_t> tensor_a = a.find_tensor(name), tensor_b = b.find_tensor(name);
      const std::optional<int64_t> object_b = b.find_object(name);
      if (!tensor_b && !object_b) {
        put(slot, Difference::Kind::kOnlyInA, name, entry_text(a, name), "");
      } else if (tensor_a.has_value() != tensor_b.has_value()) {
        put(slot, Difference::Kind::kKind, name, entry_text(a, name), entry_text(b, name));
      } else if (tensor_a) {
        pair_tensors(slot, *tensor_a, *tensor_b);
      } else {
        objects_.push_back({*a.find_object(name), *object_b, slot});
      }
    }
    for (const std::string_view name : b.names_in_order()) {
      if (!wanted(name) || a.find_tensor(name) || a.find_object(name)) continue;
      slots_.emplace_back();
      put(slots_.size() - 1, Difference::Kind::kOnlyInB, name, "", entry_text(b, name));
    }
  }

  void pair_tensors(size_t slot, int64_t index_a, int64_t index_b) {
    const Catalog::Tensor& a = a_->catalog().tensors()[static_cast<size_t>(index_a)];
    const Catalog::Tensor& b = b_->catalog().tensors()[static_cast<size_t>(index_b)];
    const bool comparable =
        a.dtype == b.dtype || (tolerance_ && has_element_values(a.dtype) && has_element_values(b.dtype) &&
                               is_complex(a.dtype) == is_complex(b.dtype));
    if (a.shape != b.shape) {
      put(slot, Difference::Kind::kShape, a.name, tensor_text(a), tensor_text(b));
    } else if (!comparable) {
      put(slot, Difference::Kind::kDType, a.name, tensor_text(a), tensor_text(b));
    } else {
      ++report_.tensors_compared;
      const int64_t bytes = tensor_bytes(a);
      report_.bytes_compared += bytes;
      expect_bytes(options_.progress, bytes);
      pairs_.push_back({index_a, index_b, a.dtype, b.dtype, Box::whole(a.shape), slot});
    }
  }

  // Step 2.
  void cut_into_pieces() {
    for (size_t p = 0; p < pairs_.size(); ++p) {
      Pair& pair = pairs_[p];
      const int64_t size_a = dtype_size(unit_of(pair.dtype_a)), size_b = dtype_size(unit_of(pair.dtype_b));
      const int64_t count = tensor_bytes(a_->catalog().tensors()[static_cast<size_t>(pair.a)]) / size_a;
      const int64_t at_once = kPieceBytes / std::max(size_a, size_b);
      pair.first_piece = static_cast<int64_t>(pieces_.size());
      for (int64_t begin = 0; begin < count; begin += at_once) {
        pieces_.push_back({static_cast<int64_t>(p), begin, std::min(count, begin + at_once)});
      }
      pair.num_pieces = static_cast<int64_t>(pieces_.size()) - pair.first_piece;
    }
    found_.resize(pieces_.size());
  }

  void compare_pieces(ThreadPool& pool) {
    std::vector<std::unique_ptr<Worker>> workers(static_cast<size_t>(pool.num_threads()));
    pool.run(static_cast<int64_t>(pieces_.size()), [&](int64_t index, int worker_index) {
      std::unique_ptr<Worker>& worker = workers[static_cast<size_t>(worker_index)];
      if (!worker) worker = std::make_unique<Worker>(a_, b_);
      const Piece& piece = pieces_[static_cast<size_t>(index)];
      const Pair& pair = pairs_[static_cast<size_t>(piece.pair)];
      const DType unit_a = unit_of(pair.dtype_a), unit_b = unit_of(pair.dtype_b);
      const int64_t size_a = dtype_size(unit_a), size_b = dtype_size(unit_b), count = piece.end - piece.begin;
      worker->a.read_linear(pair.a, pair.box, piece.begin * size_a, piece.end * size_a,
                            worker->buffer_a.data());
      worker->b.read_linear(pair.b, pair.box, piece.begin * size_b, piece.end * size_b,
                            worker->buffer_b.data());
      const std::byte *a = worker->buffer_a.data(), *b = worker->buffer_b.data();
      ElementDifferences found = tolerance_ && has_element_values(pair.dtype_a)
                                     ? compare_within(a, unit_a, b, unit_b, count, *tolerance_)
                                     : compare_bits(a, b, unit_a, count);
      if (found.count > 0) found_[static_cast<size_t>(index)] = std::make_unique<ElementDifferences>(found);
      advance(options_.progress, count * size_a);
    });
  }

  // Step 3.
  void merge_pieces() {
    for (const Pair& pair : pairs_) {
      for (int64_t i = pair.first_piece; i < pair.first_piece + pair.num_pieces; ++i) {
        const ElementDifferences* found = found_[static_cast<size_t>(i)].get();
        if (found == nullptr) continue;
        if (!slots_[pair.slot]) {
          put(pair.slot, Difference::Kind::kValues, a_->catalog().tensors()[static_cast<size_t>(pair.a)].name,
              element_text(found->a.data(), unit_of(pair.dtype_a)),
              element_text(found->b.data(), unit_of(pair.dtype_b)));
          int64_t index = pieces_[static_cast<size_t>(i)].begin + found->first;
          if (is_sub_byte(pair.dtype_a)) index = index * 8 / dtype_info(pair.dtype_a).bits;
          std::vector<int64_t>& where = slots_[pair.slot]->first_index;
          where.resize(pair.box.sizes.size());
          for (size_t d = where.size(); d-- > 0; index /= pair.box.sizes[d])
            where[d] = index % pair.box.sizes[d];
        }
        Difference& merged = *slots_[pair.slot];
        merged.num_different += found->count;
        merged.max_abs = std::max(merged.max_abs, found->max_abs);
        merged.max_rel = std::max(merged.max_rel, found->max_rel);
      }
    }
  }

  struct ObjectPair {
    int64_t a, b;
    size_t slot;
  };

  // Step 4.
  std::string json_of(const std::shared_ptr<const Checkpoint>& checkpoint, int64_t index) const {
    const ObjectValue object = checkpoint->read_object(index);
    pickle::JsonOptions json;
    json.tensor_sha256 = [&](const pickle::TensorRef& tensor) { return hash_object_tensor(object, tensor); };
    try {
      return pickle::to_json(*object.value, json);
    } catch (Error& error) {
      error.set_path(checkpoint->path())
          .set_key(checkpoint->catalog().objects()[static_cast<size_t>(index)].name);
      throw;
    }
  }

  // Whether both sides store the object as an archive, and the same one: what can be said of a refused
  // object.
  bool same_stored_bytes(const ObjectPair& pair) const {
    const Location& a = a_->catalog().objects()[static_cast<size_t>(pair.a)].location;
    const Location& b = b_->catalog().objects()[static_cast<size_t>(pair.b)].location;
    if (a.file == Location::kNoFile || b.file == Location::kNoFile || a.length != b.length) return false;
    return read_all(SliceSource(a_->open_file(a.file), a.offset, a.length), kMaxObjectBytes) ==
           read_all(SliceSource(b_->open_file(b.file), b.offset, b.length), kMaxObjectBytes);
  }

  void compare_objects(ThreadPool& pool) {
    report_.objects_compared = static_cast<int64_t>(objects_.size());
    pool.run(static_cast<int64_t>(objects_.size()), [&](int64_t index, int) {
      const ObjectPair& pair = objects_[static_cast<size_t>(index)];
      std::string a, b;
      try {
        a = json_of(a_, pair.a);
        b = json_of(b_, pair.b);
      } catch (const FormatError& error) {
        if (error.code() != ErrorCode::kRefusedGlobal) throw;
        if (same_stored_bytes(pair)) return;
        a = b = "not compared: " + error.summary();
      }
      if (a == b && a.rfind("not compared", 0) != 0) return;
      put(pair.slot, Difference::Kind::kValues, a_->catalog().objects()[static_cast<size_t>(pair.a)].name,
          shortened(a), shortened(b));
    });
  }

  const std::shared_ptr<const Checkpoint>&a_, &b_;
  const DiffOptions& options_;
  std::vector<bool> matched_;  // by the globs of options_
  std::optional<Tolerance> tolerance_;
  std::vector<std::unique_ptr<Difference>> slots_;  // one an entry; null: no difference
  std::vector<Pair> pairs_;
  std::vector<ObjectPair> objects_;
  std::vector<Piece> pieces_;
  std::vector<std::unique_ptr<ElementDifferences>> found_;  // by piece
  DiffReport report_;
};

}  // namespace

std::string_view difference_kind_name(Difference::Kind kind) {
  switch (kind) {
    case Difference::Kind::kOnlyInA:
      return "only_in_a";
    case Difference::Kind::kOnlyInB:
      return "only_in_b";
    case Difference::Kind::kKind:
      return "kind";
    case Difference::Kind::kShape:
      return "shape";
    case Difference::Kind::kDType:
      return "dtype";
    case Difference::Kind::kValues:
      return "values";
  }
  return "unknown";
}

DiffReport diff(const std::shared_ptr<const Checkpoint>& a, const std::shared_ptr<const Checkpoint>& b,
                const DiffOptions& options) {
  for (const std::optional<double>& tolerance : {options.rtol, options.atol}) {
    if (tolerance && !(*tolerance >= 0)) {
      throw ValueError(fmt::format("a tolerance of {} is no number from 0 on", *tolerance));
    }
  }
  return Comparison(a, b, options).run();
}

}  // namespace milepost
