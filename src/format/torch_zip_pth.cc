// A .pth file as a catalog. The nested state dict is flattened as torch's DCP planner does since 2.4 (spec
// dcp-format, section 4):
//
//   1. a dict, of any class, is never an entry: each of its values is, by str(key); an empty one leaves no
//   trace
//   2. a list is one entry, unless some element of it is a tensor, a dict or a list that is not one entry:
//   then its elements are, by position
//   3. all else is one entry, tuples included
//   4. an entry's key is its path joined with "."
//
// A pickle can share a value in many places, so that a small file unfolds to a huge tree: entries, name bytes
// and depth are bounded.
#include <fmt/format.h>

#include <unordered_map>

#include "format/torch_zip_archive.h"
#include "format/torch_zip_document.h"
#include "format/torch_zip_view.h"
#include "format/zip_error.h"
#include "milepost/base/error.h"
#include "milepost/format/torch_zip.h"

namespace milepost::torch_zip {
namespace {

using pickle::Kind;
using pickle::Value;

constexpr int kMaxDepth = 1000;

class Flattener {
 public:
  Flattener(Archive& archive, PthFile& file, std::string path_in_catalog)
      : archive_(archive),
        file_(file),
        file_index_(file.catalog.add_file(std::move(path_in_catalog), archive.source().size())),
        values_left_(file.document.bytes_read() + 1'000'000),
        name_bytes_left_(16 * file.document.bytes_read() + (int64_t{16} << 20)) {}

  void run() {
    try {
      walk(file_.document.root(), 0);
    } catch (Error& error) {
      error.set_path(archive_.source().name()).set_key(name_);
      throw;
    }
    file_.catalog.set_has_paths(true);
    if (!file_.catalog.tensors().empty() && !file_.catalog.objects().empty())
      file_.catalog.set_order(std::move(order_));
  }

 private:
  void walk(const Value& value, int depth) {
    count(depth);
    if (value.kind() == Kind::kDict) {
      for (int64_t i = 0; i < value.size(); ++i) {
        std::string key = key_text(value.key(i));
        descend(key, PathElement(key), value.value(i), depth);
      }
    } else if (value.kind() == Kind::kList && holds_entries(value, depth)) {
      for (int64_t i = 0; i < value.size(); ++i)
        descend(fmt::format("{}", i), PathElement(i), value.item(i), depth);
    } else if (value.kind() == Kind::kTensor) {
      add_tensor(value.tensor());
    } else {
      file_.catalog.add_object(name_, Location{});
      file_.object_values.push_back(&value);
      finish_entry();
    }
  }

  void descend(std::string_view text, PathElement element, const Value& value, int depth) {
    size_t length = name_.size();
    if (!path_.empty()) name_ += '.';
    name_ += text;
    path_.push_back(std::move(element));
    walk(value, depth + 1);
    path_.pop_back();
    name_.resize(length);
  }

  // Rule 2. Each list is judged once; one that contains itself through lists alone counts as an entry.
  bool holds_entries(const Value& list, int depth) {
    auto [it, is_new] = judged_.try_emplace(&list, false);
    if (!is_new) return it->second;
    count(depth);
    bool holds = false;
    for (int64_t i = 0; i < list.size() && !holds; ++i) {
      const Value& item = list.item(i);
      holds = item.kind() == Kind::kTensor || item.kind() == Kind::kDict ||
              (item.kind() == Kind::kList && holds_entries(item, depth + 1));
    }
    judged_[&list] = holds;
    return holds;
  }

  void count(int depth) {
    if (depth > kMaxDepth)
      fail(ErrorCode::kTooLarge, fmt::format("values are nested more than {} deep", kMaxDepth));
    if (--values_left_ < 0)
      fail(ErrorCode::kTooLarge, "shared values unfold to far more entries than the file holds");
  }

  void add_tensor(const pickle::TensorRef& ref) {
    View view(ref);
    const TensorPickle& tensor = view.tensor;
    bool big_endian = archive_.big_endian();
    int64_t item_bytes = dtype_size(tensor.dtype);
    Location location;
    location.file = file_index_;
    location.length = view.checked_bytes(archive_.source());
    location.offset = archive_.storage(tensor.storage_key, tensor.storage_bytes).data_offset;
    file_.catalog.add_tensor(name_, tensor.dtype, tensor.sizes);
    if (location.length > 0) location.offset += tensor.storage_offset * item_bytes;
    if (!view.is_plain(big_endian)) {
      StorageLayout layout = view.layout(big_endian);
      layout.storage_offset = 0;
      location.length = view_end(0, tensor.sizes, tensor.strides) * item_bytes;
      location.layout = file_.catalog.add_layout(layout);
    }
    Dims origin(tensor.sizes.size(), 0);
    file_.catalog.add_chunk(origin, tensor.sizes, location);
    finish_entry();
  }

  void finish_entry() {
    file_.catalog.set_path(name_, path_);
    order_.push_back(name_);
    name_bytes_left_ -= static_cast<int64_t>(name_.size());
    if (name_bytes_left_ < 0)
      fail(ErrorCode::kTooLarge, "the names of the entries unfold to far more bytes than the file holds");
  }

  [[noreturn]] static void fail(ErrorCode code, std::string what) {
    throw FormatError(code, std::move(what));
  }

  Archive& archive_;
  PthFile& file_;
  uint32_t file_index_;
  int64_t values_left_, name_bytes_left_;
  std::string name_;
  KeyPath path_;
  std::vector<std::string> order_;
  std::unordered_map<const Value*, bool> judged_;
};

}  // namespace

std::string key_text(const Value& key) {
  switch (key.kind()) {
    case Kind::kString:
    case Kind::kBigInt:
      return std::string(key.text());
    case Kind::kInt:
      return fmt::format("{}", key.as_int());
    case Kind::kBool:
      return key.as_bool() ? "True" : "False";
    case Kind::kNone:
      return "None";
    default:
      throw FormatError(
          ErrorCode::kUnsupported,
          fmt::format("a dict has {} for a key; only text and whole numbers are", describe(key)));
  }
}

PthFile read_pth(const ByteSource& file, std::string path_in_catalog) {
  Archive archive(file);
  ByteVector bytes = archive.read_pickle();
  PthFile result{{}, read_document(archive, bytes, true), {}};
  const Value& root = result.document.root();
  if (root.kind() != Kind::kDict) {
    zip::fail(file, ErrorCode::kUnsupported, -1,
              fmt::format("the file holds {}, not a state dict", describe(root)),
              "save a dict of tensors, such as module.state_dict()");
  }
  Flattener(archive, result, std::move(path_in_catalog)).run();
  return result;
}

}  // namespace milepost::torch_zip
