// OpenedCheckpoint: the one implementation of Checkpoint; the formats differ only in how its parts are
// filled.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "milepost/engine/checkpoint.h"

namespace milepost {

struct OpenedParts {
  CheckpointFormat format = CheckpointFormat::kDcp;
  std::string path;                  // as the user gave it
  std::shared_ptr<Storage> storage;  // null for memory
  std::string folder;                // catalog file paths are relative to it
  Catalog catalog;
  std::vector<std::string> warnings;
  std::vector<std::pair<std::string, std::string>> details;
  std::shared_ptr<const pickle::Document> document;  // of a torch.save file
  std::vector<ObjectValue> objects;  // decoded already (torch.save files, memory); empty: decoded on demand
};

class OpenedCheckpoint final : public Checkpoint {
 public:
  explicit OpenedCheckpoint(OpenedParts parts) : parts_(std::move(parts)) {}

  CheckpointFormat format() const override { return parts_.format; }
  const std::string& path() const override { return parts_.path; }
  const Catalog& catalog() const override { return parts_.catalog; }
  const std::vector<std::string>& warnings() const override { return parts_.warnings; }
  const std::vector<std::pair<std::string, std::string>>& details() const override { return parts_.details; }
  std::shared_ptr<const ByteSource> open_file(uint32_t file) const override;
  const pickle::Value* nested() const override {
    return parts_.document == nullptr ? nullptr : &parts_.document->root();
  }
  ObjectValue read_object(int64_t object, bool keep_unknown_globals) const override;

  // A file that is open already; memory checkpoints preset all of theirs.
  void preset_file(uint32_t file, std::shared_ptr<const ByteSource> source) {
    preset_.emplace(file, std::move(source));
  }

 private:
  static constexpr size_t kMaxOpenFiles = 256;
  ObjectValue refuse_opaque(const ObjectValue& value, bool keep_unknown_globals) const;

  OpenedParts parts_;
  std::unordered_map<uint32_t, std::shared_ptr<const ByteSource>> preset_;
  mutable std::mutex mutex_;
  mutable std::unordered_map<uint32_t, std::shared_ptr<const ByteSource>> open_;  // guarded by mutex_
};

// The first node below `root` that stands for a refused global; nullptr when there is none.
const pickle::Value* find_opaque(const pickle::Value& root);

// The openers fill catalog, warnings, details and objects of `parts`, whose path, storage and folder are set.
void open_dcp(OpenedParts& parts, const std::vector<FileInfo>& listing, const std::string& metadata_name);
void open_safetensors_folder(OpenedParts& parts, const std::vector<FileInfo>& listing);
void open_safetensors_file(OpenedParts& parts, const std::string& file_name);
void open_torch_file(OpenedParts& parts, const std::string& file_name);

}  // namespace milepost
