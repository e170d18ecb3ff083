#include "milepost/data/datasets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/test_data.h"
#include "milepost/base/error.h"

namespace milepost::data {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::string error_of(Storage& storage, const std::string& name, const std::string& path = {}) {
  try {
    find_dataset(storage, name, path);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Datasets, RefusesAnUnknownNameWithTheKnownOnes) {
  const auto storage = memory_storage();
  EXPECT_THAT(error_of(*storage, "Pile"),
              HasSubstr("Dataset pile is not supported. Supported datasets are: ['c4', 'c4_test', "
                        "'c4_validation', 'text']"));
}

TEST(Datasets, AsksForALocalCopyOfC4) {
  const auto storage = memory_storage();
  for (const char* name : {"c4", "c4_validation"}) {
    EXPECT_THAT(error_of(*storage, name), AllOf(HasSubstr("local copy"), HasSubstr("allenai/c4"),
                                                HasSubstr("--dataloader.dataset-path")));
  }
  EXPECT_THAT(error_of(*storage, "c4", "/absent"), HasSubstr("/absent"));
}

TEST(Datasets, ReadsTheSplitOfC4ThatIsMeant) {
  const auto storage = memory_storage();
  for (const char* folder : {"/c4", "/c4/en"}) storage->make_directory(folder);
  for (const char* file :
       {"/c4/en/c4-train.00000-of-01024.json.gz", "/c4/en/c4-validation.00000-of-00008.json.gz",
        "/c4/en/c4-train.00001-of-01024.json.gz"}) {
    write_file(*storage, file, "");
  }
  EXPECT_THAT(
      find_dataset(*storage, "C4", "/c4").files,
      ElementsAre("/c4/en/c4-train.00000-of-01024.json.gz", "/c4/en/c4-train.00001-of-01024.json.gz"));
  EXPECT_EQ(find_dataset(*storage, "c4", "/c4").split, Split::kStreaming);
  EXPECT_THAT(find_dataset(*storage, "c4_validation", "/c4").files,
              ElementsAre("/c4/en/c4-validation.00000-of-00008.json.gz"));
}

TEST(Datasets, FindsTheTestDataFromTheWorkingDirectory) {
  const auto storage = memory_storage();
  for (const char* folder : {"/tests", "/tests/assets", "/tests/assets/c4_test"})
    storage->make_directory(folder);
  write_file(*storage, "/tests/assets/c4_test/data.json", "");
  const Dataset dataset = find_dataset(*storage, "c4_test", "");
  EXPECT_EQ(dataset.path, "tests/assets/c4_test");
  EXPECT_THAT(dataset.files, ElementsAre("tests/assets/c4_test/data.json"));
  EXPECT_EQ(dataset.split, Split::kMapStyle);
}

}  // namespace
}  // namespace milepost::data
