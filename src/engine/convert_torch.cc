// A torch.save file holds one nested object: entries are placed by their paths (mapping keys and list
// positions), tensors get a storage each, tied ones
// share it. What was a torch.save file keeps its own nesting.
#include <fmt/format.h>

#include <map>
#include <tuple>
#include <unordered_map>

#include "engine/convert_plan.h"
#include "engine/object_storages.h"
#include "milepost/base/error.h"
#include "milepost/format/torch_zip.h"

namespace milepost {
namespace {

constexpr size_t kMaxPathLength = 200;
constexpr int64_t kMaxListLength = 10'000'000;

// A node of the nested state dict: a leaf, or children by key in order of first appearance.
struct Node {
  const pickle::Value* leaf = nullptr;
  std::vector<PathElement> keys;
  std::vector<Node> children;  // by position in keys
  std::map<PathElement, size_t> index;

  Node& child(const PathElement& key) {
    const auto [it, added] = index.try_emplace(key, children.size());
    if (added) {
      keys.push_back(key);
      children.emplace_back();
    }
    return children[it->second];
  }
};

[[noreturn]] void throw_conflict(std::string_view name) {
  FormatError error(ErrorCode::kBadFormat,
                    "its path is also the path of other entries, or mixes names and list positions");
  error.set_key(name);
  throw error;
}

void place(Node& root, std::string_view name, const KeyPath& path, const pickle::Value* value) {
  if (path.empty() || path.size() > kMaxPathLength) throw_conflict(name);
  Node* node = &root;
  for (const PathElement& element : path) {
    if (node->leaf != nullptr) throw_conflict(name);
    if (!node->children.empty() && node->keys[0].index() != element.index()) throw_conflict(name);
    const int64_t* position = std::get_if<int64_t>(&element);
    if (position != nullptr && (node == &root || *position < 0 || *position > kMaxListLength))
      throw_conflict(name);
    node = &node->child(element);
  }
  if (node->leaf != nullptr || !node->children.empty()) throw_conflict(name);
  node->leaf = value;
}

const pickle::Value* build(const Node& node, pickle::Builder& builder) {
  if (node.leaf != nullptr) return node.leaf;
  std::vector<const pickle::Value*> items;
  if (!node.children.empty() && std::holds_alternative<int64_t>(node.keys[0])) {
    int64_t length = 0;
    for (const PathElement& key : node.keys) length = std::max(length, std::get<int64_t>(key) + 1);
    items.assign(static_cast<size_t>(length), builder.none());
    for (size_t i = 0; i < node.keys.size(); ++i) {
      items[static_cast<size_t>(std::get<int64_t>(node.keys[i]))] = build(node.children[i], builder);
    }
    return builder.list(items);
  }
  for (size_t i = 0; i < node.keys.size(); ++i) {
    items.push_back(builder.string(std::get<std::string>(node.keys[i])));
    items.push_back(build(node.children[i], builder));
  }
  return builder.dict(items);
}

class TorchPlan {
 public:
  TorchPlan(const std::shared_ptr<const Checkpoint>& source) : source_(source) {
    out_.payloads = std::make_unique<PayloadSource>();
    out_.payloads->checkpoint = source;
    file_.source = out_.payloads.get();
  }

  const pickle::Value* tensor(const Selection::Entry& entry) {
    const Catalog::Tensor& info = source_->catalog().tensors()[static_cast<size_t>(entry.tensor)];
    pickle::TensorRef ref;
    ref.dtype = entry.dtype;
    ref.sizes.assign(info.shape.begin(), info.shape.end());
    const Dims strides = row_major_strides(info.shape);
    ref.strides.assign(strides.begin(), strides.end());
    const int64_t storage = storage_for(entry, info);
    ref.storage_bytes = storage_bytes_[static_cast<size_t>(storage)];
    const std::string key = std::to_string(storage);
    ref.storage_key = key;
    return builder_.tensor(ref);
  }

  const pickle::Value* object(const Selection::Entry& entry) {
    try {
      const ObjectStorages object(source_->read_object(entry.object), builder_,
                                  static_cast<int64_t>(storage_bytes_.size()));
      for (size_t i = 0; i < object.old_keys().size(); ++i) {
        out_.payloads->owned.push_back(read_all(*object.open(i), kMaxObjectStorage));
        add_storage({PayloadRef::Kind::kOwned, static_cast<int32_t>(out_.payloads->owned.size() - 1), -1});
      }
      return object.value();
    } catch (Error& error) {
      error.set_key(entry.name);
      throw;
    }
  }

  pickle::Builder& builder() { return builder_; }

  OutputSet finish(const pickle::Value* root, const std::string& file_name) {
    auto document = std::make_shared<pickle::Document>(builder_.finish(root));
    const std::string stem = file_name.substr(0, file_name.find_last_of('.'));
    file_.image =
        torch_zip::pth_image(file_name, stem.empty() ? "archive" : stem, document->root(), storage_bytes_);
    out_.files.push_back(std::move(file_));
    out_.alive.push_back(std::move(document));
    return std::move(out_);
  }

 private:
  static constexpr int64_t kMaxObjectStorage = int64_t{1} << 30;

  int64_t add_storage(const PayloadRef& payload) {
    file_.payloads.push_back(payload);
    storage_bytes_.push_back(out_.payloads->length(payload));
    return static_cast<int64_t>(storage_bytes_.size()) - 1;
  }

  int64_t storage_for(const Selection::Entry& entry, const Catalog::Tensor& info) {
    const auto add = [&] {
      out_.payloads->views.push_back({entry.tensor, entry.dtype, -1});
      return add_storage(
          {PayloadRef::Kind::kTensor, static_cast<int32_t>(out_.payloads->views.size() - 1), -1});
    };
    if (info.num_chunks != 1) return add();
    const Location& at = source_->catalog().chunk_location(info.first_chunk);
    if (at.layout != Location::kRowMajor || at.length == 0) return add();
    const auto [it, added] =
        tied_.try_emplace(std::make_tuple(at.file, at.offset, at.length, entry.dtype), 0);
    if (added) it->second = add();
    return it->second;
  }

  std::shared_ptr<const Checkpoint> source_;
  OutputSet out_;
  OutputFile file_;
  pickle::Builder builder_;
  std::vector<int64_t> storage_bytes_;
  std::map<std::tuple<uint32_t, int64_t, int64_t, DType>, int64_t> tied_;
};

// The source's own nesting with new leaves, so that a torch.save file keeps what paths do not tell: keys that
// are numbers (an optimizer's state), ordered dicts, empty ones.
class Rebuilder {
 public:
  Rebuilder(const Catalog& catalog, std::unordered_map<std::string_view, const pickle::Value*> leaves,
            pickle::Builder& builder)
      : catalog_(catalog), leaves_(std::move(leaves)), builder_(builder) {}

  // nullptr: nothing below `value` was selected.
  const pickle::Value* rebuild(const pickle::Value& value, const std::string& name, bool is_root) {
    if (value.kind() == pickle::Kind::kDict) return rebuild_dict(value, name, is_root);
    if (const auto leaf = leaves_.find(name); leaf != leaves_.end()) return leaf->second;
    if (value.kind() != pickle::Kind::kList || catalog_.find_object(name)) return nullptr;
    std::vector<const pickle::Value*> items;
    bool any = false;
    for (int64_t i = 0; i < value.size(); ++i) {
      const pickle::Value* item = rebuild(value.item(i), child_name(name, std::to_string(i), is_root), false);
      any |= item != nullptr;
      items.push_back(item != nullptr ? item : builder_.none());
    }
    return any ? builder_.list(items) : nullptr;
  }

 private:
  static std::string child_name(const std::string& name, const std::string& key, bool is_root) {
    return is_root ? key : name + "." + key;
  }

  const pickle::Value* rebuild_dict(const pickle::Value& value, const std::string& name, bool is_root) {
    std::vector<const pickle::Value*> items;
    for (int64_t i = 0; i < value.size(); ++i) {
      const std::string key = torch_zip::key_text(value.key(i));
      const pickle::Value* item = rebuild(value.value(i), child_name(name, key, is_root), false);
      if (item == nullptr) continue;
      items.push_back(builder_.copy(value.key(i)));
      items.push_back(item);
    }
    if (items.empty() && value.size() > 0 && !is_root) return nullptr;
    const bool is_ordered = value.class_name() == "collections OrderedDict";
    return builder_.dict(items, is_ordered ? value.class_name() : std::string_view());
  }

  const Catalog& catalog_;
  std::unordered_map<std::string_view, const pickle::Value*> leaves_;
  pickle::Builder& builder_;
};

}  // namespace

OutputSet plan_torch_output(const std::shared_ptr<const Checkpoint>& source, const Selection& selection,
                            const std::string& file_name) {
  TorchPlan plan(source);
  std::unordered_map<std::string_view, const pickle::Value*> leaves;
  for (const Selection::Entry& entry : selection.entries) {
    leaves.emplace(entry.name, entry.tensor >= 0 ? plan.tensor(entry) : plan.object(entry));
  }
  if (const pickle::Value* nested = source->nested()) {
    return plan.finish(
        Rebuilder(source->catalog(), std::move(leaves), plan.builder()).rebuild(*nested, {}, true),
        file_name);
  }
  Node root;
  for (const Selection::Entry& entry : selection.entries) {
    place(root, entry.name, source->catalog().path(entry.name), leaves.at(entry.name));
  }
  return plan.finish(build(root, plan.builder()), file_name);
}

}  // namespace milepost
