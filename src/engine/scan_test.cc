#include "milepost/engine/scan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <mutex>

#include "engine/test_checkpoints.h"
#include "milepost/base/error.h"

namespace milepost {
namespace {

using ::testing::DoubleNear;

template <typename T>
std::shared_ptr<const Checkpoint> one_tensor(DType dtype, Dims shape, const std::vector<T>& values) {
  ByteVector bytes(values.size() * sizeof(T));
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  Catalog catalog;
  const auto size = static_cast<int64_t>(bytes.size());
  const uint32_t file = catalog.add_file("memory", size);
  catalog.add_tensor("w", dtype, shape);
  catalog.add_chunk(Dims(shape.size(), 0), shape, {0, size, file, Location::kRowMajor});
  return Checkpoint::in_memory(std::move(catalog),
                               {std::make_shared<MemorySource>(std::move(bytes), "memory")}, {});
}

template <typename T>
TensorStats stats_of(DType dtype, const std::vector<T>& values, int64_t count) {
  return tensor_stats(one_tensor(dtype, {count}, values), {0}, {})[0];
}

TEST(TensorStats, CountsAndLeavesOutNanAndInfinity) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  const TensorStats stats = stats_of<float>(DType::kFloat32, {-1, 0, -0.0F, 3, nan, inf, -inf}, 7);
  EXPECT_EQ(stats.count, 7);
  EXPECT_EQ(stats.nan, 1);
  EXPECT_EQ(stats.inf, 2);
  EXPECT_EQ(stats.zeros, 2);
  EXPECT_EQ(stats.min, -1);
  EXPECT_EQ(stats.max, 3);
  EXPECT_EQ(stats.mean, 0.5);
  EXPECT_THAT(stats.std, DoubleNear(1.5, 1e-12));
}

TEST(TensorStats, AreZeroWhereNothingIsFinite) {
  const TensorStats empty = stats_of<float>(DType::kFloat32, {}, 0);
  EXPECT_EQ(empty.count, 0);
  EXPECT_EQ(empty.max, 0);
  const TensorStats nan = stats_of<float>(DType::kFloat32, {std::nanf("")}, 1);
  EXPECT_EQ(nan.min, 0);
  EXPECT_EQ(nan.std, 0);
}

TEST(TensorStats, ReadEveryKindOfElement) {
  EXPECT_EQ(stats_of<uint16_t>(DType::kBFloat16, {0x3f80, 0xc000}, 2).min, -2);
  EXPECT_EQ(stats_of<uint16_t>(DType::kFloat16, {0x3c00, 0x4000}, 2).max, 2);
  EXPECT_EQ(stats_of<int8_t>(DType::kInt8, {-128, 127}, 2).min, -128);
  EXPECT_EQ(stats_of<uint8_t>(DType::kUInt8, {255}, 1).max, 255);
  EXPECT_EQ(stats_of<uint8_t>(DType::kBool, {0, 1, 1}, 3).zeros, 1);
  EXPECT_EQ(stats_of<int64_t>(DType::kInt64, {-5, 7}, 2).mean, 1);
  EXPECT_EQ(stats_of<uint64_t>(DType::kUInt64, {1ULL << 63}, 1).max, 9223372036854775808.0);
  EXPECT_EQ(stats_of<uint8_t>(DType::kFloat8E5M2, {0x3c, 0x7c}, 2).inf, 1);
  EXPECT_EQ(stats_of<float>(DType::kComplex64, {3, 4, 0, 0}, 2).max, 5);
  EXPECT_FALSE(stats_of<uint8_t>(DType::kFloat4E2M1FNx2, {0x12}, 1).has_values);
}

TEST(TensorStats, KeepTheirDigitsFarFromZero) {
  std::vector<double> values;
  for (int i = 0; i < 100'000; ++i) values.push_back(1e9 + (i % 2 == 0 ? 1 : -1));
  const TensorStats stats = stats_of(DType::kFloat64, values, static_cast<int64_t>(values.size()));
  EXPECT_THAT(stats.std, DoubleNear(1, 1e-9));
  EXPECT_THAT(stats.mean, DoubleNear(1e9, 1e-6));
}

TEST(TensorStats, DoNotDependOnThreadsOrMemory) {
  const auto checkpoint = Checkpoint::open(TestCheckpoint("dcp/titan_dsv3_fsdp2/ckpt/step-7").where);
  std::vector<int64_t> all(checkpoint->catalog().tensors().size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(i);
  ScanOptions one, many;
  one.num_threads = 1;
  one.max_memory_bytes = 1;
  many.num_threads = 8;
  const std::vector<TensorStats> a = tensor_stats(checkpoint, all, one),
                                 b = tensor_stats(checkpoint, all, many);
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(a[i].mean, b[i].mean);
    EXPECT_EQ(a[i].std, b[i].std);
  }
}

TEST(Scan, GivesPiecesInOrderAndEmptyTensorsOnce) {
  std::vector<uint8_t> values(3 << 20, 7);
  const auto checkpoint = one_tensor(DType::kUInt8, {static_cast<int64_t>(values.size())}, values);
  int64_t next = 0;
  scan_tensors(checkpoint, {0}, {}, [&](int64_t, int64_t begin, Bytes bytes, int) {
    EXPECT_EQ(begin, next);
    next += static_cast<int64_t>(bytes.size());
  });
  EXPECT_EQ(next, 3 << 20);
  int visits = 0;
  scan_tensors(one_tensor<uint8_t>(DType::kUInt8, {0}, {}), {0}, {}, [&](int64_t, int64_t, Bytes bytes, int) {
    ++visits;
    EXPECT_TRUE(bytes.empty());
  });
  EXPECT_EQ(visits, 1);
}

TEST(Scan, CountsProgressAndStopsWhenCancelled) {
  std::vector<uint8_t> values(3 << 20, 7);
  const auto checkpoint = one_tensor(DType::kUInt8, {static_cast<int64_t>(values.size())}, values);
  Progress progress;
  ScanOptions options;
  options.progress = &progress;
  hash_tensors(checkpoint, {0}, options);
  EXPECT_EQ(progress.total_bytes, 3 << 20);
  EXPECT_EQ(progress.done_bytes, 3 << 20);
  progress.cancel = true;
  EXPECT_THROW(hash_tensors(checkpoint, {0}, options), Error);
}

// Chunks of two ranks, a payload that is not row-major, one whose conjugate is meant.
TEST(HashTensors, HashRowMajorElementsWhateverTheLayout) {
  const auto hash = [](const char* fixture, std::string_view name) {
    const auto checkpoint = Checkpoint::open(TestCheckpoint(fixture).where);
    return to_hex(hash_tensors(checkpoint, {checkpoint->catalog().find_tensor(name).value()}, {})[0]);
  };
  EXPECT_EQ(hash("dcp/fsdp_2rank/ckpt", "w.odd"),
            "7ecb9d4396c5a94a1002418d2eab112611f7bd23c28f20075db123c6a97f994b");
  EXPECT_EQ(hash("dcp/plain_dtypes/ckpt", "view.channels_last"),
            "7a0b53b9270ca345615edf35343f1e1b433ad048eda0ae2838729b8c8ebd51dd");
  EXPECT_EQ(hash("dcp/plain_dtypes/ckpt", "cplx.conj"),
            "eee7af6a859c537bd3e9f0f1e1b519ca8e16c48933a417bd1a0dae3ec90ce5fd");
}

TEST(HashTensors, ReachTensorsInsideObjects) {
  const auto checkpoint = Checkpoint::open(TestCheckpoint("dcp/nested/ckpt").where);
  const std::optional<int64_t> object = checkpoint->catalog().find_object("tuple_with_tensor");
  ASSERT_TRUE(object);
  const ObjectValue value = checkpoint->read_object(*object);
  EXPECT_EQ(hash_object_tensor(value, value.value->item(0).tensor()),
            "55c66428f68e0ad7431d0ae2b8622e22797312a62a0e453650792f2fdeca7d1d");
}

TEST(ElementText, ShowsEveryKind) {
  const auto text = [](DType dtype, auto value) {
    return element_text(reinterpret_cast<const std::byte*>(&value), dtype);
  };
  EXPECT_EQ(text(DType::kFloat32, 0.1F), "0.1");
  EXPECT_EQ(text(DType::kFloat64, 0.1), "0.1");
  EXPECT_EQ(text(DType::kBFloat16, uint16_t{0x3f80}), "1");
  EXPECT_EQ(text(DType::kInt64, INT64_MIN), "-9223372036854775808");
  EXPECT_EQ(text(DType::kUInt64, UINT64_MAX), "18446744073709551615");
  EXPECT_EQ(text(DType::kInt8, int8_t{-3}), "-3");
  EXPECT_EQ(text(DType::kBool, uint8_t{1}), "true");
  EXPECT_EQ(text(DType::kComplex64, std::array<float, 2>{1, -2.5F}), "(1, -2.5)");
  EXPECT_EQ(text(DType::kFloat32, std::nanf("")), "nan");
  EXPECT_EQ(text(DType::kFloat4E2M1FNx2, uint8_t{0xa5}), "0xa5");
}

}  // namespace
}  // namespace milepost
