// Catalog: the index of a checkpoint. It says what there is (names, dtypes, shapes, chunks and where their
// bytes lie), never how it got there.
//
// A *tensor* has a name, a dtype, a global shape and chunks; a *chunk* is a box of the tensor and a location;
// an *object* is any other entry (a number, a dict, a data loader's state), a location and a path. DCP,
// safetensors, torch.save files and a trainer's memory all present one.
//
// Memory: a chunk costs 16 bytes a dimension + 24 (56 for a matrix); nothing is kept twice. Threads: built by
// one thread, then shared by any number of readers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "milepost/base/segmented_vector.h"
#include "milepost/tensor/box.h"
#include "milepost/tensor/dtype.h"

namespace milepost {

// Where a chunk's or object's bytes lie: a range of `files()[file]`.
struct Location {
  int64_t offset = 0;
  int64_t length = 0;
  uint32_t file = kNoFile;
  uint32_t layout = kRowMajor;  // how elements lie in the range: kRowMajor, kTorchItem, or kFirstLayout +
                                // index into Catalog::layouts()

  static constexpr uint32_t kNoFile = 0xffffffff;  // no location is known (metadata without a storage entry)
  static constexpr uint32_t kRowMajor = 0;         // exactly the chunk's elements, row-major, little-endian
  static constexpr uint32_t kTorchItem = 1;        // a torch.save archive that holds the tensor (a DCP item)
  static constexpr uint32_t kFirstLayout = 2;
};

// How a tensor's elements lie in its storage where that is not plain row-major: element(i) = storage[offset +
// sum(i_d * strides_d)].
struct StorageLayout {
  int64_t storage_offset = 0;  // elements
  Dims strides;                // elements, >= 0
  bool conj = false, neg = false, byte_swap = false;
  friend bool operator==(const StorageLayout&, const StorageLayout&) = default;
};

// One element of the path by which a nested state dict holds an entry: a mapping key or a list position.
using PathElement = std::variant<std::string, int64_t>;
using KeyPath = std::vector<PathElement>;

class Catalog {
 public:
  struct File {
    std::string path;         // relative to the checkpoint's folder, never leaving it
    int64_t size_bytes = -1;  // -1: unknown or absent
  };
  struct Tensor {
    std::string name;
    DType dtype;
    Dims shape;
    int64_t first_chunk = 0, num_chunks = 0;
    int64_t first_box = 0;  // private to Catalog: where its boxes start
  };
  struct Object {
    std::string name;
    Location location;
  };

  // ---- building, in any order but: all chunks of a tensor before the next tensor's first ----
  uint32_t add_file(std::string path, int64_t size_bytes);  // the same path gives the same index
  // Throws FormatError(kDuplicate, key set) when the name is taken.
  int64_t add_tensor(std::string name, DType dtype, DimsView shape);
  int64_t add_chunk(DimsView offsets, DimsView sizes,
                    const Location& location = {});  // of the tensor added last; returns its index
  int64_t add_object(std::string name, const Location& location = {});
  void set_chunk_location(int64_t chunk, const Location& location) {
    locations_[static_cast<size_t>(chunk)] = location;
  }
  void set_object_location(int64_t object, const Location& location) {
    objects_[static_cast<size_t>(object)].location = location;
  }
  void set_file_size(uint32_t file, int64_t size_bytes) { files_[file].size_bytes = size_bytes; }
  uint32_t add_layout(const StorageLayout& layout);    // returns the value for Location::layout
  void set_path(std::string_view name, KeyPath path);  // an entry without one has the path {name}
  void set_order(std::vector<std::string> names);      // the order in which the checkpoint lists its entries,
                                                       // when it is not tensors then objects

  // ---- reading ----
  const std::vector<File>& files() const { return files_; }
  const std::vector<Tensor>& tensors() const { return tensors_; }
  const std::vector<Object>& objects() const { return objects_; }
  const std::vector<StorageLayout>& layouts() const { return layouts_; }
  int64_t num_chunks() const { return static_cast<int64_t>(locations_.size()); }

  std::optional<int64_t> find_tensor(std::string_view name) const;
  std::optional<int64_t> find_object(std::string_view name) const;
  Box chunk_box(const Tensor& tensor,
                int64_t chunk) const;            // chunk in [first_chunk, first_chunk + num_chunks)
  int64_t tensor_of_chunk(int64_t chunk) const;  // O(log tensors)
  const Location& chunk_location(int64_t chunk) const { return locations_[static_cast<size_t>(chunk)]; }
  KeyPath path(std::string_view name) const;
  bool has_paths() const { return has_paths_; }  // the checkpoint recorded paths (planner_data)
  void set_has_paths(bool has_paths) { has_paths_ = has_paths; }
  // All entry names in checkpoint order.
  std::vector<std::string_view> names_in_order() const;

  // Bytes held by chunks and boxes (not the names): for memory reports and tests of the bound.
  int64_t index_bytes() const {
    return static_cast<int64_t>(boxes_.memory_bytes() + locations_.memory_bytes());
  }

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };
  template <typename V>
  using NameMap = std::unordered_map<std::string, V, Hash, std::equal_to<>>;

  std::vector<File> files_;
  std::vector<Tensor> tensors_;
  std::vector<Object> objects_;
  std::vector<StorageLayout> layouts_;
  std::vector<std::string> order_;
  NameMap<int64_t> names_;  // tensor t as t, object o as -1 - o
  NameMap<uint32_t> file_names_;
  NameMap<KeyPath> paths_;
  SegmentedVector<int64_t> boxes_;
  SegmentedVector<Location> locations_;
  bool has_paths_ = false;
};

// Bytes of a tensor's elements; throws FormatError(kTooLarge, key set) on overflow.
int64_t tensor_bytes(const Catalog::Tensor& tensor);

}  // namespace milepost
