#include <gtest/gtest.h>

#include <algorithm>

#include "milepost/engine/reader.h"

namespace milepost {
namespace {

// A vector of uint8, each element in a file of its own. Counts the files that are open.
class ManyFiles final : public Checkpoint {
 public:
  explicit ManyFiles(int64_t count) {
    catalog_.add_tensor("w", DType::kUInt8, Dims{count});
    for (int64_t i = 0; i < count; ++i) {
      const uint32_t file = catalog_.add_file(std::to_string(i), 1);
      catalog_.add_chunk(Dims{i}, Dims{1}, {0, 1, file, Location::kRowMajor});
    }
  }
  CheckpointFormat format() const override { return CheckpointFormat::kMemory; }
  const std::string& path() const override { return path_; }
  const Catalog& catalog() const override { return catalog_; }
  const std::vector<std::string>& warnings() const override { return warnings_; }
  const std::vector<std::pair<std::string, std::string>>& details() const override { return details_; }
  const pickle::Value* nested() const override { return nullptr; }
  ObjectValue read_object(int64_t, bool) const override { return {}; }
  std::shared_ptr<const ByteSource> open_file(uint32_t file) const override {
    most_open = std::max(most_open, ++num_open);
    const auto close = [this](const MemorySource* source) {
      --num_open;
      delete source;
    };
    return {new MemorySource(ByteVector(1, static_cast<std::byte>(file)), catalog_.files()[file].path),
            close};
  }

  mutable int num_open = 0, most_open = 0;

 private:
  Catalog catalog_;
  std::string path_ = "many";
  std::vector<std::string> warnings_;
  std::vector<std::pair<std::string, std::string>> details_;
};

TEST(TensorReader, KeepsFewFilesOpenWhereATensorLiesInMany) {
  constexpr int64_t kCount = 600;
  const auto checkpoint = std::make_shared<const ManyFiles>(kCount);
  TensorReader reader(checkpoint);
  ByteVector bytes(kCount);
  for (int round = 0; round < 2; ++round) {
    reader.read(0, Box::whole(Dims{kCount}), bytes.data(), Dims{1});
    for (size_t i = 0; i < bytes.size(); ++i) ASSERT_EQ(bytes[i], static_cast<std::byte>(i));
  }
  EXPECT_LE(checkpoint->most_open, 2);
}

TEST(TensorReader, ReadsAgainFromChunksThatItHasSeen) {
  const auto checkpoint = std::make_shared<const ManyFiles>(3);
  TensorReader reader(checkpoint);
  for (const int64_t element : {0, 1, 0, 2, 2, 1, 0}) {
    std::byte byte{255};
    reader.read_linear(0, Box::whole(Dims{3}), element, element + 1, &byte);
    EXPECT_EQ(byte, static_cast<std::byte>(element));
  }
}

}  // namespace
}  // namespace milepost
