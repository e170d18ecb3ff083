#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <random>

#include "milepost/base/error.h"
#include "milepost/plan/save_plan.h"

namespace milepost {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Kind = CoverageFault::Kind;
using Random = std::mt19937_64;

int64_t pick(Random& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

Catalog catalog_of(const Dims& shape, const std::vector<Box>& chunks) {
  Catalog catalog;
  catalog.add_tensor("w", DType::kFloat32, shape);
  for (const Box& chunk : chunks) catalog.add_chunk(chunk.offsets, chunk.sizes);
  return catalog;
}

std::vector<CoverageFault> faults(const Dims& shape, const std::vector<Box>& chunks) {
  return check_coverage(catalog_of(shape, chunks));
}

std::vector<std::string> texts(const Dims& shape, const std::vector<Box>& chunks) {
  std::vector<std::string> out;
  for (const CoverageFault& fault : faults(shape, chunks)) out.push_back(fault.text);
  return out;
}

// All cells of the grid that the cuts of each dimension make, the last dimension fastest.
std::vector<Box> grid(const Dims& shape, const Dims& parts) {
  std::vector<Box> boxes = {{}};
  for (size_t d = 0; d < shape.size(); ++d) {
    std::vector<Box> next;
    for (const Box& box : boxes) {
      for (int64_t i = 0; i < parts[d]; ++i) {
        const auto [offset, size] = chunk_range(shape[d], parts[d], i);
        next.push_back(box);
        next.back().offsets.push_back(offset);
        next.back().sizes.push_back(size);
      }
    }
    boxes = std::move(next);
  }
  return boxes;
}

TEST(Coverage, TakesWholeTensorsAndCutOnes) {
  EXPECT_THAT(texts({4, 6}, {Box::whole(Dims{4, 6})}), IsEmpty());
  EXPECT_THAT(texts({4, 6}, {{{2, 0}, {2, 6}}, {{0, 0}, {2, 6}}}), IsEmpty());
  EXPECT_THAT(texts({4, 6}, {{{0, 4}, {4, 2}}, {{0, 0}, {4, 4}}}), IsEmpty());
  EXPECT_THAT(texts({3, 7, 5}, grid({3, 7, 5}, {2, 3, 5})), IsEmpty());
}

TEST(Coverage, TakesCutsThatNoLineRunsThrough) {
  const std::vector<Box> pinwheel = {
      {{0, 0}, {1, 2}}, {{0, 2}, {2, 1}}, {{2, 1}, {1, 2}}, {{1, 0}, {2, 1}}, {{1, 1}, {1, 1}}};
  EXPECT_THAT(texts({3, 3}, pinwheel), IsEmpty());
  EXPECT_THAT(texts({3, 3}, {pinwheel.begin(), pinwheel.begin() + 4}),
              ElementsAre("[1:2, 1:2] is in no chunk"));
}

TEST(Coverage, WantsOneChunkForAScalar) {
  EXPECT_THAT(texts({}, {{}}), IsEmpty());
  EXPECT_THAT(texts({}, {}), ElementsAre("the tensor has no chunk"));
  ASSERT_EQ(faults({}, {{}, {}}).size(), 1u);
  EXPECT_EQ(faults({}, {{}, {}})[0].kind, Kind::kOverlap);
}

TEST(Coverage, WantsNothingForATensorWithoutElements) {
  EXPECT_THAT(texts({0, 3}, {}), IsEmpty());
  EXPECT_THAT(texts({0, 3}, {{{0, 0}, {0, 3}}}), IsEmpty());
  EXPECT_THAT(texts({3, 0}, {{{0, 0}, {3, 0}}, {{0, 0}, {3, 0}}}), IsEmpty());
}

TEST(Coverage, PassesOverEmptyChunks) {
  EXPECT_THAT(texts({3}, {{{0}, {3}}, {{3}, {0}}, {{1}, {0}}}), IsEmpty());
  EXPECT_THAT(texts({3}, {{{3}, {0}}}), ElementsAre("the tensor has no chunk"));
}

TEST(Coverage, SaysWhereAHoleIs) {
  EXPECT_THAT(texts({8}, {{{0}, {2}}, {{4}, {4}}}), ElementsAre("elements 2:4 are in no chunk"));
  EXPECT_THAT(texts({8, 3}, {{{0, 0}, {2, 3}}, {{4, 0}, {4, 3}}}), ElementsAre("rows 2:4 are in no chunk"));
  EXPECT_THAT(texts({4, 8}, {{{0, 0}, {4, 3}}, {{0, 5}, {4, 3}}}), ElementsAre("[0:4, 3:5] is in no chunk"));
  EXPECT_THAT(texts({4, 8}, {}), ElementsAre("the tensor has no chunk"));
}

TEST(Coverage, NamesBothChunksOfAnOverlap) {
  const std::vector<CoverageFault> found = faults({4}, {{{2}, {2}}, {{0}, {3}}});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].kind, Kind::kOverlap);
  EXPECT_EQ(found[0].chunk_a, 0);
  EXPECT_EQ(found[0].chunk_b, 1);
  EXPECT_EQ(found[0].text, "chunks [2:4] and [0:3] overlap");
}

TEST(Coverage, NamesChunksOutOfBounds) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  for (const Box& chunk : std::vector<Box>{{{0}, {5}},
                                           {{-1}, {5}},
                                           {{2}, {kMax}},
                                           {{kMax}, {kMax}},
                                           {{5}, {0}},
                                           {{2}, {-1}},
                                           {{-kMax - 1}, {-kMax - 1}},
                                           {{kMax}, {0}}}) {
    const std::vector<CoverageFault> found = faults({4}, {{{0}, {4}}, chunk});
    ASSERT_GE(found.size(), 1u);
    EXPECT_EQ(found[0].kind, Kind::kOutOfBounds);
    EXPECT_EQ(found[0].chunk_a, 1);
  }
  // What lies inside still counts.
  EXPECT_EQ(faults({4}, {{{0}, {2}}, {{2}, {5}}}).size(), 1u);
}

TEST(Coverage, ListsFaultsOfAllTensorsInOrderUpToTheLimit) {
  Catalog catalog;
  for (const char* name : {"a", "b", "c"}) {
    catalog.add_tensor(name, DType::kFloat32, Dims{4});
    catalog.add_chunk(Dims{1}, Dims{1});
    catalog.add_chunk(Dims{3}, Dims{1});
    if (*name == 'b') catalog.add_chunk(Dims{3}, Dims{1});
  }
  std::vector<std::pair<int64_t, Kind>> found;
  for (const CoverageFault& fault : check_coverage(catalog)) found.emplace_back(fault.tensor, fault.kind);
  const auto hole = [](int64_t t) { return std::pair(t, Kind::kHole); };
  EXPECT_THAT(
      found, ElementsAre(hole(0), hole(0), hole(1), hole(1), std::pair(1, Kind::kOverlap), hole(2), hole(2)));
  EXPECT_EQ(check_coverage(catalog, 4).size(), 4u);
  EXPECT_EQ(check_coverage(catalog, 0).size(), 0u);
}

TEST(Coverage, IsNotQuadraticWhateverDimensionIsCut) {
  for (const auto& [shape, parts] : std::vector<std::pair<Dims, Dims>>{{{1 << 15, 8}, {1 << 15, 1}},
                                                                       {{8, 1 << 15}, {1, 1 << 15}},
                                                                       {{128, 256}, {128, 256}},
                                                                       {{32, 32, 32}, {32, 32, 32}}}) {
    std::vector<Box> boxes = grid(shape, parts);
    EXPECT_THAT(texts(shape, boxes), IsEmpty());
    std::shuffle(boxes.begin(), boxes.end(), Random(1));
    boxes.push_back(std::exchange(boxes[1234], boxes[5678]));
    const std::vector<CoverageFault> found = faults(shape, boxes);
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0].kind, Kind::kOverlap);
    EXPECT_THAT((std::pair{found[0].chunk_a, found[0].chunk_b}), testing::Pair(1234, 5678));
    boxes.erase(boxes.begin() + 1234);
    boxes.pop_back();
    EXPECT_THAT(faults(shape, boxes).size(), 1u);
  }
}

TEST(Coverage, EndsEarlyWhereFaultsWithoutEndAre) {
  std::vector<Box> gaps;
  for (int64_t i = 0; i < 50'000; ++i) gaps.push_back({{2 * i}, {1}});
  const std::vector<CoverageFault> found = check_coverage(catalog_of({100'000}, gaps), 100'000);
  EXPECT_THAT(found.back().text, HasSubstr("not listed"));
  EXPECT_EQ(check_coverage(catalog_of({4}, std::vector<Box>(50'000, Box{{0}, {4}}))).size(), 1000u);
}

// Random boxes that make up the whole: cuts of cuts, so most have no line running through.
void cut(Random& random, const Box& box, int depth, std::vector<Box>* out) {
  std::vector<size_t> dims;
  for (size_t d = 0; d < box.sizes.size(); ++d) {
    if (box.sizes[d] > 1) dims.push_back(d);
  }
  if (dims.empty() || depth == 0 || pick(random, 0, 5) == 0) {
    out->push_back(box);
    return;
  }
  const size_t d = dims[static_cast<size_t>(pick(random, 0, static_cast<int64_t>(dims.size()) - 1))];
  Box low = box, high = box;
  low.sizes[d] = pick(random, 1, box.sizes[d] - 1);
  high.offsets[d] += low.sizes[d];
  high.sizes[d] -= low.sizes[d];
  cut(random, low, depth - 1, out);
  cut(random, high, depth - 1, out);
}

Box random_box(Random& random, const Dims& shape, int64_t slack) {
  Box box;
  for (int64_t size : shape) {
    box.offsets.push_back(pick(random, -slack, size));
    box.sizes.push_back(pick(random, 0, size - box.offsets.back() + slack));
  }
  return box;
}

std::vector<Box> random_chunks(Random& random, const Dims& shape) {
  std::vector<Box> chunks;
  cut(random, Box::whole(shape), static_cast<int>(pick(random, 0, 6)), &chunks);
  std::shuffle(chunks.begin(), chunks.end(), random);
  const int64_t changes = pick(random, 0, 4);
  for (int64_t i = 0; i < changes; ++i) {
    const auto at = [&] {
      return static_cast<size_t>(pick(random, 0, static_cast<int64_t>(chunks.size()) - 1));
    };
    const int64_t kind = pick(random, 0, 4);
    if (kind == 0 && !chunks.empty()) chunks.erase(chunks.begin() + static_cast<int64_t>(at()));
    if (kind == 1 && !chunks.empty()) chunks.push_back(chunks[at()]);
    if (kind == 2) chunks.push_back(random_box(random, shape, 0));
    if (kind == 3 && !chunks.empty()) chunks[at()] = random_box(random, shape, 0);
    if (kind == 4 && pick(random, 0, 9) == 0) chunks.push_back(random_box(random, shape, 1));
  }
  return chunks;
}

bool holds(const Box& box, const Dims& element) {
  for (size_t d = 0; d < element.size(); ++d) {
    if (element[d] < box.offsets[d] || element[d] >= box.offsets[d] + box.sizes[d]) return false;
  }
  return true;
}

void for_each_element(const Dims& shape, const std::function<void(const Dims&)>& visit) {
  const Dims strides = row_major_strides(shape);
  for (int64_t i = 0; i < num_elements(shape); ++i) {
    Dims element;
    int64_t rest = i;
    for (size_t d = 0; d < shape.size(); ++d) {
      element.push_back(rest / strides[d]);
      rest %= strides[d];
    }
    visit(element);
  }
}

// The box that a hole's text names.
Box hole_box(const std::string& text, const Dims& shape) {
  Box box = Box::whole(shape);
  int64_t begin, end;
  if (std::sscanf(text.c_str(), "rows %ld:%ld", &begin, &end) == 2 ||
      std::sscanf(text.c_str(), "elements %ld:%ld", &begin, &end) == 2) {
    box.offsets[0] = begin;
    box.sizes[0] = end - begin;
  } else if (text[0] == '[') {
    const char* at = text.c_str();
    for (size_t d = 0; d < shape.size(); ++d) {
      char* next;
      box.offsets[d] = std::strtol(at + (d == 0 ? 1 : 2), &next, 10);
      box.sizes[d] = std::strtol(next + 1, &next, 10) - box.offsets[d];
      at = next;
    }
  }
  return box;
}

// Element by element: what is uncovered lies in exactly one reported hole, what is covered more than once in
// a reported pair, and nothing else is reported.
TEST(Coverage, AgreesWithCountingElements) {
  Random random(20240607);
  int64_t faulty = 0;
  for (int round = 0; round < 10'000; ++round) {
    Dims shape;
    for (int64_t d = pick(random, 0, 4); d > 0; --d)
      shape.push_back(pick(random, pick(random, 0, 9) == 0 ? 0 : 1, 5));
    const std::vector<Box> chunks = random_chunks(random, shape);
    const std::vector<CoverageFault> found = faults(shape, chunks);
    std::string chunk_texts;
    for (const Box& chunk : chunks) chunk_texts += box_text(chunk) + " ";
    SCOPED_TRACE("round " + std::to_string(round) + " shape " + dims_text(shape) + " chunks " + chunk_texts);
    faulty += !found.empty();

    std::vector<Box> holes;
    std::vector<std::pair<size_t, size_t>> pairs;
    size_t out_of_bounds = 0;
    for (const CoverageFault& fault : found) {
      if (fault.kind == Kind::kHole) holes.push_back(hole_box(fault.text, shape));
      if (fault.kind == Kind::kOverlap) pairs.emplace_back(fault.chunk_a, fault.chunk_b);
      out_of_bounds += fault.kind == Kind::kOutOfBounds;
    }
    size_t expected_out_of_bounds = 0;
    for (const Box& chunk : chunks) expected_out_of_bounds += !box_fits(chunk, shape);
    ASSERT_EQ(out_of_bounds, expected_out_of_bounds);
    for (const auto& [a, b] : pairs) ASSERT_TRUE(a < b && intersect(chunks[a], chunks[b]));
    for_each_element(shape, [&](const Dims& element) {
      const auto count = std::ranges::count_if(chunks, [&](const Box& box) { return holds(box, element); });
      const auto in_holes = std::ranges::count_if(holes, [&](const Box& box) { return holds(box, element); });
      const bool in_pair = std::ranges::any_of(
          pairs, [&](auto p) { return holds(chunks[p.first], element) && holds(chunks[p.second], element); });
      ASSERT_EQ(in_holes, count == 0 ? 1 : 0) << dims_text(element);
      ASSERT_EQ(in_pair, count > 1) << dims_text(element);
    });
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(faulty, 3000);
  EXPECT_LT(faulty, 9000);
}

}  // namespace
}  // namespace milepost
