#include "milepost/engine/checkpoint.h"

#include <fmt/format.h>

#include "engine/opened_checkpoint.h"
#include "milepost/base/error.h"
#include "milepost/format/torch_zip.h"

namespace milepost {

std::string_view format_name(CheckpointFormat format) {
  switch (format) {
    case CheckpointFormat::kDcp:
      return "dcp";
    case CheckpointFormat::kSafetensors:
      return "safetensors";
    case CheckpointFormat::kTorchSave:
      return "torch";
    case CheckpointFormat::kMemory:
      return "memory";
  }
  return "unknown";
}

bool is_model_key(std::string_view name) {
  for (std::string_view prefix : {"optimizer.", "lr_scheduler.", "dataloader.", "train_state.",
                                  "ema_optimizer.", "ema.", "milepost."}) {
    if (name.substr(0, prefix.size()) == prefix) return false;
  }
  return true;
}

std::shared_ptr<const ByteSource> OpenedCheckpoint::open_file(uint32_t file) const {
  if (const auto it = preset_.find(file); it != preset_.end()) return it->second;
  std::lock_guard lock(mutex_);
  if (const auto it = open_.find(file); it != open_.end()) return it->second;
  if (open_.size() >= kMaxOpenFiles) open_.erase(open_.begin());
  const std::string& relative = parts_.catalog.files()[file].path;
  const std::string full = parts_.folder.empty() ? relative : join_path(parts_.folder, relative);
  const std::optional<FileInfo> info = parts_.storage->stat(full);
  if (!info) {
    FormatError error(ErrorCode::kMissingFile, "this file of the checkpoint is missing");
    error.set_path(full);
    throw error;
  }
  std::shared_ptr<const ByteSource> source = parts_.storage->open_read(full);
  open_.emplace(file, source);
  return source;
}

ObjectValue OpenedCheckpoint::read_object(int64_t object, bool keep_unknown_globals) const {
  const Catalog::Object& entry = parts_.catalog.objects()[static_cast<size_t>(object)];
  try {
    if (!parts_.objects.empty())
      return refuse_opaque(parts_.objects[static_cast<size_t>(object)], keep_unknown_globals);
    if (entry.location.file == Location::kNoFile) {
      throw FormatError(ErrorCode::kMissingKey, "no data is recorded for this entry");
    }
    auto item = std::make_shared<const SliceSource>(open_file(entry.location.file), entry.location.offset,
                                                    entry.location.length);
    torch_zip::Object decoded = torch_zip::read_object(*item, keep_unknown_globals);
    auto document = std::make_shared<const pickle::Document>(std::move(decoded.document));
    const pickle::Value* root = &document->root();
    return {std::move(document), root, std::move(item)};
  } catch (Error& error) {
    error.set_key(entry.name);
    throw;
  }
}

// A .pth file is read once with unknown globals kept; an entry that holds one is refused only when it is
// asked for.
ObjectValue OpenedCheckpoint::refuse_opaque(const ObjectValue& value, bool keep_unknown_globals) const {
  const pickle::Value* opaque = keep_unknown_globals ? nullptr : find_opaque(*value.value);
  if (opaque != nullptr) {
    FormatError error(ErrorCode::kRefusedGlobal,
                      fmt::format("it names {}, which is not on the list of what may be read",
                                  printable(opaque->class_name())),
                      "save the entry as plain numbers, strings, lists and dicts");
    error.set_path(parts_.path);
    throw error;
  }
  return value;
}

const pickle::Value* find_opaque(const pickle::Value& root) {
  std::vector<const pickle::Value*> todo = {&root};
  // Shared parts may be met many times; the bound keeps a crafted lattice from taking for ever, and what is
  // refused then is only more.
  for (int64_t visited = 0; !todo.empty(); ++visited) {
    const pickle::Value& value = *todo.back();
    todo.pop_back();
    if (value.kind() == pickle::Kind::kOpaque || visited > 1'000'000) return &value;
    switch (value.kind()) {
      case pickle::Kind::kDict:
        for (int64_t i = 0; i < value.size(); ++i) {
          todo.push_back(&value.key(i));
          todo.push_back(&value.value(i));
        }
        break;
      case pickle::Kind::kList:
      case pickle::Kind::kTuple:
      case pickle::Kind::kSet:
      case pickle::Kind::kFrozenSet:
        for (int64_t i = 0; i < value.size(); ++i) todo.push_back(&value.item(i));
        break;
      default:
        break;
    }
  }
  return nullptr;
}

std::shared_ptr<const Checkpoint> Checkpoint::in_memory(Catalog catalog,
                                                        std::vector<std::shared_ptr<const ByteSource>> files,
                                                        std::vector<ObjectValue> objects) {
  OpenedParts parts;
  parts.format = CheckpointFormat::kMemory;
  parts.path = "<memory>";
  parts.catalog = std::move(catalog);
  parts.objects = std::move(objects);
  auto checkpoint = std::make_shared<OpenedCheckpoint>(std::move(parts));
  for (uint32_t i = 0; i < files.size(); ++i) checkpoint->preset_file(i, std::move(files[i]));
  return checkpoint;
}

}  // namespace milepost
