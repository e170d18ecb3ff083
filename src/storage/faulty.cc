#include "milepost/storage/faulty.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <map>
#include <mutex>
#include <utility>

#include "milepost/base/error.h"
#include "storage/errno_error.h"

namespace milepost {
namespace {

constexpr std::array<std::string_view, 16> kOperations = {
    "open",  "read",   "write",    "truncate", "sync",    "close", "list", "stat",
    "mkdir", "rename", "exchange", "remove",   "syncdir", "lock",  "free", "any"};

constexpr std::array<std::pair<std::string_view, int>, 14> kErrors = {{{"EIO", EIO},
                                                                       {"ENOSPC", ENOSPC},
                                                                       {"EACCES", EACCES},
                                                                       {"EROFS", EROFS},
                                                                       {"EDQUOT", EDQUOT},
                                                                       {"EMFILE", EMFILE},
                                                                       {"ENOENT", ENOENT},
                                                                       {"EINTR", EINTR},
                                                                       {"EPERM", EPERM},
                                                                       {"EBUSY", EBUSY},
                                                                       {"EFBIG", EFBIG},
                                                                       {"ENFILE", ENFILE},
                                                                       {"ESTALE", ESTALE},
                                                                       {"ENOSYS", ENOSYS}}};

enum class Effect { kReads, kMutates };

// Counts calls and holds the faults. Shared by the storage and what it has opened.
class Trigger {
 public:
  explicit Trigger(std::vector<Fault> faults) : faults_(std::move(faults)) {}

  // Throws when a planned fault is due.
  void call(std::string_view op, Effect effect, const std::string& path) {
    const std::lock_guard lock(mutex_);
    if (is_cut_) throw PowerCut{};
    const int64_t op_call = ++calls_[std::string(op)];
    const int64_t any_call = effect == Effect::kMutates ? ++calls_["any"] : 0;
    for (const Fault& fault : faults_) {
      const bool is_due =
          (fault.op == op && fault.call == op_call) || (fault.op == "any" && fault.call == any_call);
      if (!is_due) continue;
      if (fault.error_number != 0) {
        throw errno_error(fmt::format("planned fault in {} number {}", op, op_call), path,
                          fault.error_number);
      }
      is_cut_ = true;
      throw PowerCut{};
    }
  }

  int64_t calls(std::string_view op) const {
    const std::lock_guard lock(mutex_);
    const auto found = calls_.find(std::string(op));
    return found == calls_.end() ? 0 : found->second;
  }

 private:
  const std::vector<Fault> faults_;
  mutable std::mutex mutex_;
  std::map<std::string, int64_t> calls_;  // GUARDED_BY(mutex_)
  bool is_cut_ = false;                   // GUARDED_BY(mutex_)
};
using TriggerPtr = std::shared_ptr<Trigger>;

class FaultySource final : public ByteSource {
 public:
  FaultySource(std::unique_ptr<ByteSource> inner, TriggerPtr trigger)
      : inner_(std::move(inner)), trigger_(std::move(trigger)) {}

  int64_t size() const override { return inner_->size(); }
  const std::string& name() const override { return inner_->name(); }
  void read_at(int64_t offset, MutableBytes dst) const override {
    trigger_->call("read", Effect::kReads, name());
    inner_->read_at(offset, dst);
  }

 private:
  const std::unique_ptr<ByteSource> inner_;
  const TriggerPtr trigger_;
};

class FaultyWritable final : public WritableFile {
 public:
  FaultyWritable(std::unique_ptr<WritableFile> inner, std::string path, TriggerPtr trigger)
      : inner_(std::move(inner)), path_(std::move(path)), trigger_(std::move(trigger)) {}

  int64_t alignment() const override { return inner_->alignment(); }
  void write_at(int64_t offset, std::span<const Bytes> parts) override {
    trigger_->call("write", Effect::kMutates, path_);
    inner_->write_at(offset, parts);
  }
  void truncate(int64_t size_bytes) override {
    trigger_->call("truncate", Effect::kMutates, path_);
    inner_->truncate(size_bytes);
  }
  void sync() override {
    trigger_->call("sync", Effect::kMutates, path_);
    inner_->sync();
  }
  void close() override {
    trigger_->call("close", Effect::kMutates, path_);
    inner_->close();
  }

 private:
  const std::unique_ptr<WritableFile> inner_;
  const std::string path_;
  const TriggerPtr trigger_;
};

class FaultyWrapper final : public FaultyStorage {
 public:
  FaultyWrapper(std::shared_ptr<Storage> inner, std::vector<Fault> faults)
      : inner_(std::move(inner)), trigger_(std::make_shared<Trigger>(std::move(faults))) {}

  int64_t calls(std::string_view op) const override { return trigger_->calls(op); }

  std::unique_ptr<ByteSource> open_read(const std::string& path) override {
    trigger_->call("open", Effect::kReads, path);
    return std::make_unique<FaultySource>(inner_->open_read(path), trigger_);
  }
  std::unique_ptr<WritableFile> open_write(const std::string& path,
                                           const WriteFileOptions& options) override {
    trigger_->call("open", Effect::kMutates, path);
    return std::make_unique<FaultyWritable>(inner_->open_write(path, options), path, trigger_);
  }
  std::optional<FileInfo> stat(const std::string& path) override {
    trigger_->call("stat", Effect::kReads, path);
    return inner_->stat(path);
  }
  std::vector<FileInfo> list(const std::string& directory) override {
    trigger_->call("list", Effect::kReads, directory);
    return inner_->list(directory);
  }
  void make_directory(const std::string& path) override {
    trigger_->call("mkdir", Effect::kMutates, path);
    inner_->make_directory(path);
  }
  void rename(const std::string& from, const std::string& to) override {
    trigger_->call("rename", Effect::kMutates, to);
    inner_->rename(from, to);
  }
  bool exchange(const std::string& a, const std::string& b) override {
    try {
      trigger_->call("exchange", Effect::kMutates, b);
    } catch (const StorageError& error) {
      if (error.error_number() == ENOSYS) return false;
      throw;
    }
    return inner_->exchange(a, b);
  }
  void remove_file(const std::string& path) override {
    trigger_->call("remove", Effect::kMutates, path);
    inner_->remove_file(path);
  }
  bool remove_directory(const std::string& path) override {
    trigger_->call("remove", Effect::kMutates, path);
    return inner_->remove_directory(path);
  }
  void remove_tree(const std::string& path) override {
    trigger_->call("remove", Effect::kMutates, path);
    inner_->remove_tree(path);
  }
  void sync_directory(const std::string& path) override {
    trigger_->call("syncdir", Effect::kMutates, path);
    inner_->sync_directory(path);
  }
  std::unique_ptr<FileLock> try_lock(const std::string& path) override {
    trigger_->call("lock", Effect::kReads, path);
    return inner_->try_lock(path);
  }
  int64_t free_bytes(const std::string& path) override {
    trigger_->call("free", Effect::kReads, path);
    return inner_->free_bytes(path);
  }

 private:
  const std::shared_ptr<Storage> inner_;
  const TriggerPtr trigger_;
};

[[noreturn]] void refuse(std::string_view item, std::string reason) {
  throw ValueError(fmt::format("planned fault '{}': {}", printable(item), reason),
                   "write fail=OP:N:ERRNO or cut=OP:N, joined by '&'");
}

// Takes what lies before the first ':' off `text`.
std::string_view take_field(std::string_view& text) {
  const size_t colon = text.find(':');
  const std::string_view field = text.substr(0, colon);
  text.remove_prefix(colon == std::string_view::npos ? text.size() : colon + 1);
  return field;
}

int parse_errno(std::string_view item, std::string_view name) {
  std::string known;
  for (const auto& [known_name, number] : kErrors) {
    if (known_name == name) return number;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", known_name);
  }
  refuse(item, fmt::format("expected one of {}", known));
}

Fault parse_fault(std::string_view item) {
  std::string_view rest = item;
  const bool is_cut = rest.starts_with("cut=");
  if (!is_cut && !rest.starts_with("fail=")) refuse(item, "it begins neither with fail= nor with cut=");
  rest.remove_prefix(rest.find('=') + 1);

  Fault fault;
  fault.op = take_field(rest);
  if (std::find(kOperations.begin(), kOperations.end(), fault.op) == kOperations.end()) {
    refuse(item, fmt::format("expected one of {}", fmt::join(kOperations, ", ")));
  }
  const std::string_view call = take_field(rest);
  const auto [end, error] = std::from_chars(call.data(), call.data() + call.size(), fault.call);
  if (error != std::errc() || end != call.data() + call.size() || fault.call < 1) {
    refuse(item, "expected the number of a call, from 1");
  }
  if (!is_cut) fault.error_number = parse_errno(item, rest);
  if (is_cut && !rest.empty()) refuse(item, "expected nothing after the number");
  return fault;
}

}  // namespace

std::shared_ptr<FaultyStorage> faulty_storage(std::shared_ptr<Storage> inner, std::vector<Fault> faults) {
  return std::make_shared<FaultyWrapper>(std::move(inner), std::move(faults));
}

std::vector<Fault> parse_faults(std::string_view query) {
  std::vector<Fault> faults;
  while (!query.empty()) {
    const size_t ampersand = query.find('&');
    faults.push_back(parse_fault(query.substr(0, ampersand)));
    query.remove_prefix(ampersand == std::string_view::npos ? query.size() : ampersand + 1);
  }
  return faults;
}

}  // namespace milepost
