// Files in memory. A node lives as long as a name leads to it or somebody has it open, as on a real disk.
#include <fmt/format.h>

#include <cstring>
#include <mutex>
#include <utility>

#include "milepost/base/checked_math.h"
#include "milepost/storage/simulated_disk.h"
#include "milepost/storage/storage.h"
#include "storage/errno_error.h"
#include "storage/memory_tree.h"

namespace milepost {
namespace {

constexpr int64_t kMaxFileBytes = int64_t{1} << 40;
constexpr int64_t kFreeBytes = int64_t{1} << 40;

struct Shared {
  explicit Shared(MemoryTree initial) : tree(std::move(initial)) {}
  std::mutex mutex;  // guards tree and all its nodes
  MemoryTree tree;
};
using SharedPtr = std::shared_ptr<Shared>;

class MemoryFileSource final : public ByteSource {
 public:
  MemoryFileSource(SharedPtr shared, MemoryNodePtr node, std::string path)
      : shared_(std::move(shared)),
        node_(std::move(node)),
        path_(std::move(path)),
        size_(static_cast<int64_t>(node_->content.size())) {}

  int64_t size() const override { return size_; }
  const std::string& name() const override { return path_; }

  void read_at(int64_t offset, MutableBytes dst) const override {
    const std::lock_guard lock(shared_->mutex);
    const int64_t end = std::min(size_, static_cast<int64_t>(node_->content.size()));
    if (!range_fits(offset, static_cast<int64_t>(dst.size()), end)) {
      StorageError error(ErrorCode::kTruncated,
                         fmt::format("cannot read {} bytes: it ends at byte {}", dst.size(), end), path_);
      error.set_offset(offset);
      throw error;
    }
    if (!dst.empty()) std::memcpy(dst.data(), node_->content.data() + offset, dst.size());
  }

 private:
  const SharedPtr shared_;
  const MemoryNodePtr node_;
  const std::string path_;
  const int64_t size_;
};

class MemoryWritable final : public WritableFile {
 public:
  MemoryWritable(SharedPtr shared, MemoryNodePtr node, std::string path)
      : shared_(std::move(shared)), node_(std::move(node)), path_(std::move(path)) {}

  int64_t alignment() const override { return 1; }

  void write_at(int64_t offset, std::span<const Bytes> parts) override {
    const std::lock_guard lock(shared_->mutex);
    for (Bytes part : parts) {
      if (part.empty()) continue;
      const auto length = static_cast<int64_t>(part.size());
      if (!range_fits(offset, length, kMaxFileBytes)) throw errno_error("cannot write", path_, EFBIG);
      if (node_->content.size() < static_cast<size_t>(offset + length)) {
        node_->content.resize(static_cast<size_t>(offset + length));
      }
      std::memcpy(node_->content.data() + offset, part.data(), part.size());
      offset += length;
    }
  }

  void truncate(int64_t size_bytes) override {
    const std::lock_guard lock(shared_->mutex);
    if (!range_fits(0, size_bytes, kMaxFileBytes)) {
      throw errno_error(fmt::format("cannot set the size to {} bytes", size_bytes), path_, EINVAL);
    }
    node_->content.resize(static_cast<size_t>(size_bytes));
  }

  void sync() override {
    const std::lock_guard lock(shared_->mutex);
    shared_->tree.sync_file(*node_);
  }

  void close() override {}

 private:
  const SharedPtr shared_;
  const MemoryNodePtr node_;
  const std::string path_;
};

class MemoryLock final : public FileLock {
 public:
  MemoryLock(SharedPtr shared, MemoryNodePtr node) : shared_(std::move(shared)), node_(std::move(node)) {
    node_->is_locked = true;
  }
  ~MemoryLock() override {
    const std::lock_guard lock(shared_->mutex);
    node_->is_locked = false;
  }

 private:
  const SharedPtr shared_;
  const MemoryNodePtr node_;
};

FileInfo file_info(std::string name, const MemoryNode& node) {
  const auto size = static_cast<int64_t>(node.content.size());
  return {std::move(name), node.is_directory, !node.is_directory, size, 0};
}

bool holds(const MemoryNode& folder, const MemoryNode* node) {
  for (const auto& [name, child] : folder.entries) {
    if (child.get() == node || holds(*child, node)) return true;
  }
  return false;
}

class MemoryStorage final : public SimulatedDisk {
 public:
  explicit MemoryStorage(MemoryTree tree) : shared_(std::make_shared<Shared>(std::move(tree))) {}

  std::unique_ptr<ByteSource> open_read(const std::string& path) override {
    const std::lock_guard lock(shared_->mutex);
    const MemoryNodePtr node = existing("cannot open for reading", path);
    if (node->is_directory) throw errno_error("cannot open for reading", path, EISDIR);
    return std::make_unique<MemoryFileSource>(shared_, node, path);
  }

  std::unique_ptr<WritableFile> open_write(const std::string& path,
                                           const WriteFileOptions& options) override {
    const std::lock_guard lock(shared_->mutex);
    const MemoryNodePtr node = file_to_write("cannot open for writing", path);
    if (!options.keep_content) node->content.clear();
    return std::make_unique<MemoryWritable>(shared_, node, path);
  }

  std::optional<FileInfo> stat(const std::string& path) override {
    const std::lock_guard lock(shared_->mutex);
    const MemoryNodePtr node = shared_->tree.find(path);
    if (node == nullptr) return std::nullopt;
    return file_info(base_name(path), *node);
  }

  std::vector<FileInfo> list(const std::string& directory) override {
    const std::lock_guard lock(shared_->mutex);
    std::vector<FileInfo> found;
    for (const auto& [name, node] : folder("cannot list the folder", directory)->entries) {
      found.push_back(file_info(name, *node));
    }
    return found;
  }

  void make_directory(const std::string& path) override {
    const std::lock_guard lock(shared_->mutex);
    const MemoryNodePtr there = shared_->tree.find(path);
    if (there != nullptr && there->is_directory) return;
    if (there != nullptr) throw errno_error("cannot make the folder", path, EEXIST);
    const MemoryTree::Place place = shared_->tree.place("cannot make the folder", path);
    auto made = std::make_shared<MemoryNode>();
    made->is_directory = true;
    shared_->tree.apply({{place.folder, place.name, made}});
  }

  void rename(const std::string& from, const std::string& to) override {
    const std::lock_guard lock(shared_->mutex);
    const MemoryTree::Place source = shared_->tree.place("cannot rename", from);
    const MemoryNodePtr node = source.node();
    if (node == nullptr) throw errno_error("cannot rename", from, ENOENT);
    const std::string what_failed = fmt::format("cannot rename {} to this name", printable(from));
    const MemoryTree::Place target = shared_->tree.place(what_failed, to);
    const MemoryNodePtr replaced = target.node();
    if (replaced == node && !node->is_directory) return;
    if (replaced != nullptr && (replaced->is_directory || node->is_directory)) {
      throw errno_error(what_failed, to, EEXIST);
    }
    if (node == target.folder || holds(*node, target.folder.get()))
      throw errno_error(what_failed, to, EINVAL);
    shared_->tree.apply({{source.folder, source.name, nullptr}, {target.folder, target.name, node}});
  }

  bool exchange(const std::string& a, const std::string& b) override {
    const std::lock_guard lock(shared_->mutex);
    const std::string what_failed = fmt::format("cannot exchange with {}", printable(a));
    const MemoryTree::Place first = shared_->tree.place(what_failed, a);
    const MemoryTree::Place second = shared_->tree.place(what_failed, b);
    const MemoryNodePtr first_node = first.node(), second_node = second.node();
    if (first_node == nullptr || second_node == nullptr) throw errno_error(what_failed, b, ENOENT);
    if (holds(*first_node, second_node.get()) || holds(*second_node, first_node.get())) return false;
    shared_->tree.apply({{first.folder, first.name, second_node}, {second.folder, second.name, first_node}});
    return true;
  }

  void remove_file(const std::string& path) override {
    const std::lock_guard lock(shared_->mutex);
    const MemoryNodePtr node = shared_->tree.find(path);
    if (node == nullptr) return;
    if (node->is_directory) throw errno_error("cannot remove", path, EISDIR);
    unlink(path);
  }

  bool remove_directory(const std::string& path) override {
    const std::lock_guard lock(shared_->mutex);
    const MemoryNodePtr node = shared_->tree.find(path);
    if (node == nullptr) return false;
    if (!node->is_directory) throw errno_error("cannot remove the folder", path, ENOTDIR);
    if (!node->entries.empty()) return false;
    unlink(path);
    return true;
  }

  void remove_tree(const std::string& path) override {
    const std::lock_guard lock(shared_->mutex);
    const MemoryNodePtr node = shared_->tree.find(path);
    if (node == nullptr) return;
    const MemoryTree::Place place = shared_->tree.place("cannot remove", path);
    empty(node);
    shared_->tree.apply({{place.folder, place.name, nullptr}});
  }

  void sync_directory(const std::string& path) override {
    const std::lock_guard lock(shared_->mutex);
    shared_->tree.sync_folder(folder("cannot sync the folder", path));
  }

  std::unique_ptr<FileLock> try_lock(const std::string& path) override {
    const std::lock_guard lock(shared_->mutex);
    const MemoryNodePtr node = file_to_write("cannot open the lock file", path);
    if (node->is_locked) return nullptr;
    return std::make_unique<MemoryLock>(shared_, node);
  }

  int64_t free_bytes(const std::string& path) override {
    const std::lock_guard lock(shared_->mutex);
    existing("cannot find out the free space", path);
    return kFreeBytes;
  }

  std::shared_ptr<SimulatedDisk> after_power_cut(Survival survival, uint64_t seed) const override {
    const std::lock_guard lock(shared_->mutex);
    return std::make_shared<MemoryStorage>(shared_->tree.after_power_cut(survival, seed));
  }

 private:
  // All below require the mutex.

  MemoryNodePtr existing(std::string_view what_failed, const std::string& path) const {
    MemoryNodePtr node = shared_->tree.find(path);
    if (node != nullptr) return node;
    shared_->tree.place(what_failed, path);  // has the better message where a parent is at fault
    throw errno_error(std::string(what_failed), path, ENOENT);
  }

  MemoryNodePtr folder(std::string_view what_failed, const std::string& path) const {
    MemoryNodePtr node = existing(what_failed, path);
    if (!node->is_directory) throw errno_error(std::string(what_failed), path, ENOTDIR);
    return node;
  }

  MemoryNodePtr file_to_write(std::string_view what_failed, const std::string& path) {
    if (MemoryNodePtr node = shared_->tree.find(path)) {
      if (node->is_directory) throw errno_error(std::string(what_failed), path, EISDIR);
      return node;
    }
    const MemoryTree::Place place = shared_->tree.place(what_failed, path);
    auto made = std::make_shared<MemoryNode>();
    shared_->tree.apply({{place.folder, place.name, made}});
    return made;
  }

  void unlink(const std::string& path) {
    const MemoryTree::Place place = shared_->tree.place("cannot remove", path);
    shared_->tree.apply({{place.folder, place.name, nullptr}});
  }

  // One change for each name, deepest first, as a disk sees it.
  void empty(const MemoryNodePtr& node) {
    while (!node->entries.empty()) {
      const auto& [name, child] = *node->entries.begin();
      empty(child);
      shared_->tree.apply({{node, std::string(name), nullptr}});
    }
  }

  const SharedPtr shared_;
};

}  // namespace

std::shared_ptr<Storage> memory_storage() { return std::make_shared<MemoryStorage>(MemoryTree(false)); }
std::shared_ptr<SimulatedDisk> simulated_disk() { return std::make_shared<MemoryStorage>(MemoryTree(true)); }

}  // namespace milepost
