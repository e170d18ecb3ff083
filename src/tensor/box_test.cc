#include "milepost/tensor/box.h"

#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <vector>

namespace milepost {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

TEST(Shape, CountsElements) {
  EXPECT_EQ(num_elements(Dims{}), 1);
  EXPECT_EQ(num_elements(Dims{7, 5}), 35);
  EXPECT_EQ(num_elements(Dims{7, 0, 5}), 0);
  EXPECT_EQ(num_elements(Dims{kMax, kMax, 0}), 0) << "a zero wins over what would overflow";
}

TEST(Shape, HasRowMajorStrides) {
  EXPECT_EQ(row_major_strides(Dims{}), Dims{});
  EXPECT_EQ(row_major_strides(Dims{2, 3, 4}), (Dims{12, 4, 1}));
  EXPECT_EQ(row_major_strides(Dims{2, 0, 3}), (Dims{3, 3, 1})) << "as torch";
}

TEST(Shape, OfNoElementsMayHaveHugeDimensions) {
  EXPECT_EQ(row_major_strides(Dims{0, kMax, kMax}).size(), 3u);
  EXPECT_TRUE(Box::whole(Dims{kMax, 0}).empty());
}

TEST(Shape, IsShownInBrackets) {
  EXPECT_EQ(dims_text(Dims{7, 5}), "[7, 5]");
  EXPECT_EQ(dims_text(Dims{}), "[]");
}

TEST(Box, IsShownAsRanges) {
  EXPECT_EQ(box_text({{0, 8}, {4, 8}}), "[0:4, 8:16]");
  EXPECT_EQ(box_text({}), "[]");
  EXPECT_EQ(box_text({{kMax}, {2}}), "[9223372036854775807:+2]");
}

TEST(Box, IsEmptyWhenSomeSizeIsZero) {
  EXPECT_FALSE(Box{}.empty()) << "0-d";
  EXPECT_FALSE(Box::whole(Dims{2, 3}).empty());
  EXPECT_TRUE((Box{{0, 3}, {2, 0}}.empty()));
}

TEST(Box, FitsInsideItsShapeOnly) {
  EXPECT_TRUE(box_fits({}, Dims{}));
  EXPECT_TRUE(box_fits({{2, 0}, {3, 4}}, Dims{5, 4}));
  EXPECT_TRUE(box_fits({{5, 0}, {0, 4}}, Dims{5, 4})) << "empty, at the end";
  EXPECT_FALSE(box_fits({{6, 0}, {0, 4}}, Dims{5, 4}));
  EXPECT_FALSE(box_fits({{2, 0}, {4, 4}}, Dims{5, 4}));
  EXPECT_FALSE(box_fits({{-1, 0}, {1, 4}}, Dims{5, 4}));
  EXPECT_FALSE(box_fits({{0, 0}, {-1, 4}}, Dims{5, 4}));
  EXPECT_FALSE(box_fits({{kMax, 0}, {kMax, 4}}, Dims{5, 4}));
  EXPECT_FALSE(box_fits({{0}, {1}}, Dims{5, 4}));
  EXPECT_FALSE(box_fits({{0, 0}, {1}}, Dims{5, 4}));
}

TEST(Intersect, ReturnsWhatIsCommon) {
  const auto common = intersect({{0, 2}, {4, 6}}, {{2, 0}, {9, 5}});
  ASSERT_TRUE(common);
  EXPECT_EQ(*common, (Box{{2, 2}, {2, 3}}));
}

TEST(Intersect, FindsNothingBetweenNeighboursAndEmptyBoxes) {
  EXPECT_FALSE(intersect({{0}, {4}}, {{4}, {4}}));
  EXPECT_FALSE(intersect({{0, 0}, {4, 4}}, {{0, 4}, {4, 4}}));
  EXPECT_FALSE(intersect({{2}, {0}}, {{0}, {4}})) << "an empty box inside the other";
}

TEST(Intersect, AlwaysFindsScalars) { EXPECT_TRUE(intersect({}, {})); }

TEST(ChunkRange, CutsAsTorchChunk) {
  using Range = std::pair<int64_t, int64_t>;
  const auto all = [](int64_t length, int64_t count) {
    std::vector<Range> ranges;
    for (int64_t i = 0; i < count; ++i) ranges.push_back(chunk_range(length, count, i));
    return ranges;
  };
  EXPECT_EQ(all(8, 2), (std::vector<Range>{{0, 4}, {4, 4}}));
  EXPECT_EQ(all(7, 3), (std::vector<Range>{{0, 3}, {3, 3}, {6, 1}}));
  EXPECT_EQ(all(3, 4), (std::vector<Range>{{0, 1}, {1, 1}, {2, 1}, {3, 0}}));
  EXPECT_EQ(all(5, 4), (std::vector<Range>{{0, 2}, {2, 2}, {4, 1}, {5, 0}}));
  EXPECT_EQ(all(0, 2), (std::vector<Range>{{0, 0}, {0, 0}}));
  EXPECT_EQ(all(6, 1), (std::vector<Range>{{0, 6}}));
}

TEST(ChunkRange, HoldsForTheLargestLength) {
  EXPECT_EQ(chunk_range(kMax, 2, 1), (std::pair<int64_t, int64_t>{kMax / 2 + 1, kMax / 2}));
  EXPECT_EQ(
      chunk_range(kMax, 1 << 20, (1 << 20) - 1).first + chunk_range(kMax, 1 << 20, (1 << 20) - 1).second,
      kMax);
}

// Each box must be one run of linear positions, and the runs must follow each other from begin to end.
void expect_exact_split(const Dims& sizes, int64_t begin, int64_t end) {
  std::vector<Box> boxes;
  split_linear_range(sizes, begin, end, &boxes);
  const Dims strides = row_major_strides(sizes);
  int64_t at = begin;
  for (const Box& box : boxes) {
    ASSERT_TRUE(box_fits(box, sizes)) << box_text(box);
    ASSERT_FALSE(box.empty());
    int64_t first = 0, last = 0;
    for (size_t d = 0; d < sizes.size(); ++d) {
      first += box.offsets[d] * strides[d];
      last += (box.offsets[d] + box.sizes[d] - 1) * strides[d];
    }
    ASSERT_EQ(first, at) << box_text(box);
    ASSERT_EQ(last - first + 1, box.num_elements()) << box_text(box) << " is not contiguous";
    at = last + 1;
  }
  ASSERT_EQ(at, end);
  ASSERT_LE(boxes.size(), 2 * sizes.size() + 1);
}

TEST(SplitLinearRange, CoversEveryRangeExactly) {
  for (const Dims& sizes : {Dims{}, Dims{1}, Dims{9}, Dims{4, 5}, Dims{1, 7}, Dims{7, 1}, Dims{3, 4, 5},
                            Dims{3, 1, 5}, Dims{2, 3, 1, 4}, Dims{1, 1, 1}, Dims{2, 2, 2, 2, 2}}) {
    const int64_t total = num_elements(sizes);
    for (int64_t begin = 0; begin <= total; ++begin) {
      for (int64_t end = begin; end <= total; ++end) {
        expect_exact_split(sizes, begin, end);
        if (HasFatalFailure()) FAIL() << dims_text(sizes) << " " << begin << " " << end;
      }
    }
  }
}

TEST(SplitLinearRange, GivesWholeTensorsAsOneBox) {
  std::vector<Box> boxes{Box::whole(Dims{1})};
  split_linear_range(Dims{3, 4, 5}, 0, 60, &boxes);
  EXPECT_EQ(boxes, std::vector<Box>{Box::whole(Dims{3, 4, 5})});
}

TEST(SplitLinearRange, GivesNothingForAnEmptyRange) {
  std::vector<Box> boxes;
  split_linear_range(Dims{3, 0}, 0, 0, &boxes);
  EXPECT_TRUE(boxes.empty());
  split_linear_range(Dims{3, 4}, 5, 5, &boxes);
  EXPECT_TRUE(boxes.empty());
}

}  // namespace
}  // namespace milepost
