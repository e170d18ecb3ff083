#include "milepost/engine/derived.h"

#include <fmt/format.h>

#include "milepost/base/error.h"

namespace milepost {
namespace {

class DerivedCheckpoint final : public Checkpoint {
 public:
  DerivedCheckpoint(std::shared_ptr<const Checkpoint> source, KeyMap map)
      : source_(std::move(source)), map_(std::move(map)) {}

  CheckpointFormat format() const override { return source_->format(); }
  const std::string& path() const override { return source_->path(); }
  const Catalog& catalog() const override { return map_.target; }
  const std::vector<std::string>& warnings() const override { return source_->warnings(); }
  const std::vector<std::pair<std::string, std::string>>& details() const override {
    return source_->details();
  }
  std::shared_ptr<const ByteSource> open_file(uint32_t file) const override {
    throw ValueError(fmt::format("a derived checkpoint has no file {}", file));
  }
  const pickle::Value* nested() const override { return nullptr; }
  ObjectValue read_object(int64_t object, bool) const override {
    throw ValueError(fmt::format("a derived checkpoint has no object {}", object));
  }
  Derivation derivation() const override { return {&source_, &map_}; }

 private:
  std::shared_ptr<const Checkpoint> source_;
  KeyMap map_;
};

}  // namespace

std::shared_ptr<const Checkpoint> derive(std::shared_ptr<const Checkpoint> source, KeyMap map) {
  return std::make_shared<DerivedCheckpoint>(std::move(source), std::move(map));
}

}  // namespace milepost
