#include "inspection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "milepost/base/error.h"
#include "open_path.h"

namespace milepost::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string data(const std::string& path) { return std::string(MILEPOST_TEST_DATA) + "/" + path; }

TEST(Summary, CountsGroupsOfATrainingCheckpoint) {
  const auto checkpoint = open_path(data("dcp/titan_dsv3_1rank/ckpt/step-3"));
  const Summary summary = summarise(*checkpoint);
  EXPECT_EQ(summary.all.tensors, 109);
  EXPECT_EQ(summary.all.objects, 329);
  ASSERT_EQ(summary.groups.size(), 5u);
  EXPECT_EQ(summary.groups[0].first, "model");
  EXPECT_EQ(summary.groups[0].second.tensors, 28);
  EXPECT_EQ(summary.groups[1].first, "optimizer");
  EXPECT_EQ(summary.groups[1].second.objects, 27 * 12);
  int64_t bytes = 0;
  for (const auto& [name, totals] : summary.groups) bytes += totals.bytes;
  EXPECT_EQ(bytes, summary.all.bytes);
  EXPECT_TRUE(summary.missing_files.empty());
}

TEST(Summary, NamesMissingFiles) {
  const Summary summary = summarise(*open_path(data("bad/data-file-missing/ckpt")));
  EXPECT_THAT(summary.missing_files, testing::ElementsAre("__1_0.distcp"));
}

TEST(Summary, SaturatesAtAbsurdSizes) {
  Catalog catalog;
  for (int i = 0; i < 20; ++i) catalog.add_tensor(std::to_string(i), DType::kInt8, Dims{INT64_MAX / 16});
  const auto checkpoint = Checkpoint::in_memory(std::move(catalog), {}, {});
  EXPECT_EQ(summarise(*checkpoint).all.bytes, INT64_MAX);
}

TEST(SelectEntries, KeepsTheOrderOfTheCheckpoint) {
  const auto checkpoint = open_path(data("dcp/nested/ckpt"));
  const Catalog& catalog = checkpoint->catalog();
  std::vector<std::string> names;
  for (const Entry& entry : select_entries(catalog, {"dotted.*", "top"}))
    names.push_back(entry_name(catalog, entry));
  EXPECT_THAT(names, testing::ElementsAre("top", "dotted.x.y", "dotted.x.z"));
  EXPECT_EQ(select_entries(catalog, {}).size(), catalog.tensors().size() + catalog.objects().size());
  EXPECT_TRUE(select_entries(catalog, {"no such*"}).empty());
}

std::string message(const std::string& path) {
  try {
    open_path(path);
  } catch (const StorageError& error) {
    return error.what();
  }
  return "";
}

TEST(OpenPath, SaysWhichStepsThereAre) {
  EXPECT_THAT(message(data("bad/steps-basic/checkpoint")),
              AllOf(HasSubstr("complete: step-9, step-10"), HasSubstr("incomplete: step-100")));
  EXPECT_THAT(message(data("bad/steps-basic/checkpoint/step-11")),
              AllOf(HasSubstr("no such"), HasSubstr("complete: step-9, step-10")));
}

TEST(OpenPath, SaysNothingOfStepsWhereThereAreNone) {
  EXPECT_THAT(message(data("bad")), Not(HasSubstr("step")));
  EXPECT_THAT(message(data("no-such-thing")), HasSubstr("no such"));
}

}  // namespace
}  // namespace milepost::cli
