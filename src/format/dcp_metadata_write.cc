// How `.metadata` is written (spec dcp-format, sections 2 and 13), as torch's own pickler would, at protocol
// 4:
//
// 1. Metadata with state_dict_metadata, planner_data, storage_data, storage_meta and version, in torch's
// order, so that
//    the one-pass reader meets each name before what refers to it.
// 2. What comes again is written once and then by its memo number: attribute names, classes, dtypes, entry
// names, file
//    names, the outer elements of paths. torch.Size objects are not shared, in torch neither.
// 3. Dicts and lists come in batches of 1000 items, so that a reader's stack stays small. Frames are left
// out: they are
//    optional, and only save calls to a reader that reads a file piece by piece.
// 4. storage_meta comes after all that depends on the content, so the save_id is a digest of the bytes before
// it.
#include <cassert>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "format/dcp_opcode_writer.h"
#include "format/pickle_text.h"
#include "milepost/base/error.h"
#include "milepost/format/dcp.h"

namespace milepost::dcp {
namespace {

constexpr int64_t kBatch = 1000;

// MARK, items and the opcode that takes them, a batch at a time.
class Batches {
 public:
  Batches(OpcodeWriter& out, uint8_t take_opcode) : out_(out), take_opcode_(take_opcode) {}
  void next_item() {
    if (count_ == kBatch) end();
    if (count_++ == 0) out_.op(pickle::kOpMark);
  }
  void end() {
    if (count_ != 0) out_.op(take_opcode_);
    count_ = 0;
  }

 private:
  OpcodeWriter& out_;
  uint8_t take_opcode_;
  int64_t count_ = 0;
};

// A UUID of version 8, which is for digests of one's own.
std::string uuid_text(const Sha256Digest& digest) {
  Sha256Digest bytes = digest;
  bytes[6] = static_cast<uint8_t>(0x80 | (bytes[6] & 0x0f));
  bytes[8] = static_cast<uint8_t>(0x80 | (bytes[8] & 0x3f));
  std::string text = to_hex(bytes).substr(0, 32);
  for (const size_t position : {20u, 16u, 12u, 8u}) text.insert(position, 1, '-');
  return text;
}

class MetadataWriter {
 public:
  MetadataWriter(const Catalog& catalog, ByteSink& sink)
      : catalog_(catalog),
        out_(sink),
        tensor_memo_(catalog.tensors().size()),
        object_memo_(catalog.objects().size()),
        file_memo_(catalog.files().size(), -1) {}

  void write(const WriteMetadataOptions& options) {
    out_.begin_state(Class::kMetadata);
    write_entries();
    write_paths();
    write_storage();
    write_storage_meta(options);
    out_.word(Word::kVersionName);
    out_.text(kVersion);
    out_.end_state();
    out_.finish();
  }

 private:
  // Calls on_tensor(index) or on_object(index) for each entry in checkpoint order.
  template <typename OnTensor, typename OnObject>
  void for_each_entry(OnTensor on_tensor, OnObject on_object) const {
    for (std::string_view name : catalog_.names_in_order()) {
      if (const auto tensor = catalog_.find_tensor(name)) {
        on_tensor(static_cast<size_t>(*tensor));
      } else if (const auto object = catalog_.find_object(name)) {
        on_object(static_cast<size_t>(*object));
      }
    }
  }

  void write_entries() {
    out_.word(Word::kStateDictMetadata);
    out_.op(pickle::kOpEmptyDict);
    Batches items(out_, pickle::kOpSetItems);
    const auto name = [&](std::string_view text) {
      items.next_item();
      out_.text(text);
      return out_.memoize();
    };
    for_each_entry(
        [&](size_t tensor) {
          tensor_memo_[tensor] = name(catalog_.tensors()[tensor].name);
          write_tensor(catalog_.tensors()[tensor]);
        },
        [&](size_t object) {
          object_memo_[object] = name(catalog_.objects()[object].name);
          out_.begin_object(Class::kBytesStorage);
        });
    items.end();
  }

  void write_tensor(const Catalog::Tensor& tensor) {
    out_.begin_state(Class::kTensorStorage);
    out_.word(Word::kProperties);
    write_properties(tensor.dtype);
    out_.word(Word::kSize);
    out_.size(tensor.shape);
    out_.word(Word::kChunks);
    out_.op(pickle::kOpEmptyList);
    Batches items(out_, pickle::kOpAppends);
    for (int64_t c = 0; c < tensor.num_chunks; ++c) {
      const Box box = catalog_.chunk_box(tensor, tensor.first_chunk + c);
      items.next_item();
      out_.begin_state(Class::kChunk);
      out_.word(Word::kOffsets);
      out_.size(box.offsets);
      out_.word(Word::kSizes);
      out_.size(box.sizes);
      out_.end_state();
    }
    items.end();
    out_.end_state();
  }

  // dtype, layout, requires_grad, memory format, pin_memory; only the dtype means anything.
  void write_properties(DType dtype) {
    out_.begin_object(Class::kProperties);
    out_.op(pickle::kOpMark);
    out_.dtype(dtype);
    shared_call(&layout_memo_, Class::kGetLayout, [&] { out_.word(Word::kStrided); });
    out_.op(pickle::kOpNewFalse);
    shared_call(&memory_format_memo_, Class::kMemoryFormat, [&] { out_.integer(0); });
    out_.op(pickle::kOpNewFalse);
    out_.op(pickle::kOpTuple);
    out_.op(pickle::kOpBuild);
  }

  template <typename Argument>
  void shared_call(int64_t* memo_number, Class function, Argument argument) {
    if (*memo_number >= 0) return out_.get(*memo_number);
    out_.global(function);
    argument();
    out_.op(pickle::kOpTuple1);
    out_.op(pickle::kOpReduce);
    *memo_number = out_.memoize();
  }

  void write_paths() {
    out_.word(Word::kPlannerData);
    out_.op(pickle::kOpEmptyDict);
    Batches items(out_, pickle::kOpSetItems);
    const auto entry = [&](std::string_view name, int64_t name_memo) {
      items.next_item();
      out_.get(name_memo);
      write_path(catalog_.path(name), name, name_memo);
    };
    for_each_entry([&](size_t tensor) { entry(catalog_.tensors()[tensor].name, tensor_memo_[tensor]); },
                   [&](size_t object) { entry(catalog_.objects()[object].name, object_memo_[object]); });
    items.end();
  }

  void write_path(const KeyPath& path, std::string_view name, int64_t name_memo) {
    out_.mark_for_tuple_of(path.size());
    for (size_t i = 0; i < path.size(); ++i) {
      if (const auto* position = std::get_if<int64_t>(&path[i])) {
        out_.integer(*position);
      } else {
        const std::string& text = std::get<std::string>(path[i]);
        if (text == name) {
          out_.get(name_memo);
        } else if (i + 1 == path.size()) {
          out_.text(text);
        } else if (const auto known = path_memo_.find(text); known != path_memo_.end()) {
          out_.get(known->second);
        } else {
          out_.text(text);
          path_memo_.emplace(text, out_.memoize());
        }
      }
    }
    out_.tuple_of(path.size());
  }

  void write_storage() {
    out_.word(Word::kStorageData);
    out_.op(pickle::kOpEmptyDict);
    Batches items(out_, pickle::kOpSetItems);
    for_each_entry([&](size_t tensor) { write_tensor_storage(tensor, &items); },
                   [&](size_t object) {
                     items.next_item();
                     out_.begin_state(Class::kIndex);
                     out_.word(Word::kFqn);
                     out_.get(object_memo_[object]);
                     out_.word(Word::kIndex);
                     out_.op(pickle::kOpNone);
                     out_.end_state();
                     write_location(catalog_.objects()[object].location);
                   });
    items.end();
  }

  void write_tensor_storage(size_t index, Batches* items) {
    const Catalog::Tensor& tensor = catalog_.tensors()[index];
    for (int64_t c = 0; c < tensor.num_chunks; ++c) {
      const Box box = catalog_.chunk_box(tensor, tensor.first_chunk + c);
      const Location& location = catalog_.chunk_location(tensor.first_chunk + c);
      if (location.file == Location::kNoFile && box.empty()) continue;  // such items may be left out
      items->next_item();
      out_.begin_state(Class::kIndex);
      out_.word(Word::kFqn);
      out_.get(tensor_memo_[index]);
      out_.word(Word::kIndex);
      out_.integer(c);
      out_.word(Word::kOffset);
      out_.size(box.offsets);
      out_.end_state();
      write_location(location);
    }
  }

  void write_location(const Location& location) {
    assert(location.file != Location::kNoFile);
    out_.begin_state(Class::kStorageInfo);
    out_.word(Word::kRelativePath);
    int64_t& memo_number = file_memo_[location.file];
    if (memo_number >= 0) {
      out_.get(memo_number);
    } else {
      out_.text(catalog_.files()[location.file].path);
      memo_number = out_.memoize();
    }
    out_.word(Word::kOffset);
    out_.integer(location.offset);
    out_.word(Word::kLength);
    out_.integer(location.length);
    out_.end_state();
  }

  void write_storage_meta(const WriteMetadataOptions& options) {
    const std::string save_id = options.save_id.empty() ? uuid_text(out_.digest()) : options.save_id;
    out_.word(Word::kStorageMeta);
    out_.begin_state(Class::kStorageMeta);
    out_.word(Word::kCheckpointId);
    // A folder's name may be any bytes, a text in a pickle may not.
    out_.text(pickle::is_utf8(options.checkpoint_id) ? options.checkpoint_id
                                                     : printable(options.checkpoint_id));
    out_.word(Word::kSaveId);
    out_.text(save_id);
    out_.word(Word::kLoadId);
    out_.op(pickle::kOpNone);
    out_.word(Word::kModules);
    out_.op(pickle::kOpEmptyList);
    out_.end_state();
  }

  const Catalog& catalog_;
  OpcodeWriter out_;
  std::vector<int64_t> tensor_memo_, object_memo_, file_memo_;  // numbers of names
  std::unordered_map<std::string, int64_t> path_memo_;
  int64_t layout_memo_ = -1, memory_format_memo_ = -1;
};

}  // namespace

void write_metadata(const Catalog& catalog, const WriteMetadataOptions& options, ByteSink& sink) {
  MetadataWriter(catalog, sink).write(options);
}

std::string data_file_name(int64_t rank, int64_t n) {
  return "__" + std::to_string(rank) + "_" + std::to_string(n) + ".distcp";
}

}  // namespace milepost::dcp
