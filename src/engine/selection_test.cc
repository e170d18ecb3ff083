#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "milepost/base/error.h"
#include "milepost/engine/convert.h"

namespace milepost {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Selection, LeavesOutAPackedScalarThatSafetensorsCannotHold) {
  Catalog catalog;
  std::vector<std::shared_ptr<const ByteSource>> files;
  for (const auto& [name, shape] : {std::pair{"scalar", Dims{}}, std::pair{"vector", Dims{1}}}) {
    const uint32_t file = catalog.add_file(std::string("memory/") + name, 1);
    catalog.add_tensor(name, DType::kFloat4E2M1FNx2, shape);
    catalog.add_chunk(Dims(shape.size(), 0), shape, {0, 1, file, Location::kRowMajor});
    files.push_back(std::make_shared<MemorySource>(ByteVector(1), name));
  }
  const auto source = Checkpoint::in_memory(std::move(catalog), std::move(files), {});
  const StorageLocation destination{memory_storage(), "/out.safetensors"};
  ConvertOptions options;
  options.to = CheckpointFormat::kSafetensors;
  options.files = 1;
  try {
    convert(source, destination, options);
    FAIL();
  } catch (const FormatError& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
  }
  options.skip_unsupported = true;
  const ConvertReport report = convert(source, destination, options);
  EXPECT_THAT(report.skipped, ElementsAre(HasSubstr("scalar: safetensors cannot pair")));
  EXPECT_EQ(report.tensors, 1);
}

}  // namespace
}  // namespace milepost
