#include "engine/strided_read.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

namespace milepost {
namespace {

// Memory that hides that it is memory, so that reads are counted, and counts them.
class FileLike final : public ByteSource {
 public:
  explicit FileLike(int64_t size) : bytes_(static_cast<size_t>(size)) {
    std::mt19937 random(1);
    for (std::byte& byte : bytes_) byte = static_cast<std::byte>(random());
  }
  int64_t size() const override { return static_cast<int64_t>(bytes_.size()); }
  void read_at(int64_t offset, MutableBytes dst) const override {
    ++reads;
    std::memcpy(dst.data(), bytes_.data() + offset, dst.size());
  }
  const std::string& name() const override { return name_; }
  const std::byte* at(int64_t offset) const { return bytes_.data() + offset; }
  mutable int reads = 0;

 private:
  ByteVector bytes_;
  std::string name_ = "file";
};

TEST(StridedRead, EqualsElementwiseCopyForRandomArrays) {
  std::mt19937_64 random(7);
  const auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  const FileLike file(1 << 20);
  for (int round = 0; round < 3000; ++round) {
    const int64_t element = int64_t{1} << pick(0, 4);
    const int64_t ndim = pick(0, 4);
    StridedArray array{&file, 0, {}, {}, nullptr, {}, element};
    int64_t span = element;
    for (int64_t d = 0; d < ndim; ++d) {
      array.sizes.push_back(pick(0, 9) == 0 ? 0 : pick(1, 9));
      array.src_strides.push_back(pick(0, 5) == 0 ? 0 : element * pick(1, 300));
      span += std::max<int64_t>(0, array.sizes.back() - 1) * array.src_strides.back();
    }
    array.offset = pick(0, file.size() - span);
    Dims dense = row_major_strides(array.sizes);
    if (ndim >= 2 && pick(0, 1) == 0) std::swap(dense[0], dense[1]);
    if (ndim >= 2 && dense[0] < dense[1]) {  // column order: strides that fit the swapped sizes
      Dims swapped = array.sizes;
      std::swap(swapped[0], swapped[1]);
      dense = row_major_strides(swapped);
      std::swap(dense[0], dense[1]);
    }
    for (int64_t& stride : dense) stride *= element;
    array.dst_strides = dense;
    const int64_t count = num_elements(array.sizes);
    ByteVector got(static_cast<size_t>(count * element)), want(got.size());
    const Dims order = row_major_strides(array.sizes);
    for (int64_t i = 0; i < count; ++i) {
      int64_t rest = i, src = array.offset, dst = 0;
      for (size_t d = 0; d < order.size(); ++d) {
        src += rest / order[d] * array.src_strides[d];
        dst += rest / order[d] * array.dst_strides[d];
        rest %= order[d];
      }
      std::memcpy(want.data() + dst, file.at(src), static_cast<size_t>(element));
    }
    array.dst = got.data();
    StridedReader reader(pick(0, 1) == 0 ? 4096 : 1 << 16);
    reader.read(array);
    ASSERT_EQ(got, want) << "round " << round;
  }
}

TEST(StridedRead, ReadsALongRunStraightAndOnce) {
  const FileLike file(1 << 20);
  ByteVector memory(1 << 19);
  StridedReader reader(1 << 16);
  reader.read({&file, 4096, {8, 1 << 16}, {1 << 16, 1}, memory.data(), {1 << 16, 1}, 1});
  EXPECT_EQ(file.reads, 1);
  EXPECT_EQ(reader.bytes_read(), 1 << 19);
}

TEST(StridedRead, ReadsCoveringRowsForShortRuns) {
  const FileLike file(1 << 20);
  ByteVector memory(256 * 100);
  StridedReader reader(1 << 16);
  reader.read({&file, 0, {256, 100}, {1000, 1}, memory.data(), {100, 1}, 1});
  EXPECT_LE(file.reads, 5);
}

TEST(StridedRead, SkipsGapsBetweenRowsThatLieFarApart) {
  const FileLike file(1 << 20);
  ByteVector memory(8 * 100);
  StridedReader reader(1 << 19);
  reader.read({&file, 0, {8, 100}, {100'000, 1}, memory.data(), {100, 1}, 1});
  EXPECT_EQ(reader.bytes_read(), 8 * 100);
}

}  // namespace
}  // namespace milepost
