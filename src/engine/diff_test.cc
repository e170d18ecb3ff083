#include "milepost/engine/diff.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "engine/test_checkpoints.h"
#include "milepost/base/error.h"

namespace milepost {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr float kNanF = std::numeric_limits<float>::quiet_NaN(),
                kInfF = std::numeric_limits<float>::infinity();

// Checkpoints in memory, tensor by tensor.
class Builder {
 public:
  template <typename T>
  Builder& tensor(const std::string& name, DType dtype, Dims shape, const std::vector<T>& values) {
    ByteVector bytes(values.size() * sizeof(T));
    if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
    return tensor(name, dtype, std::move(shape), std::move(bytes));
  }
  Builder& tensor(const std::string& name, DType dtype, Dims shape, ByteVector bytes) {
    const auto size = static_cast<int64_t>(bytes.size());
    const uint32_t file = catalog_.add_file("memory/" + name, size);
    catalog_.add_tensor(name, dtype, shape);
    catalog_.add_chunk(Dims(shape.size(), 0), shape, {0, size, file, Location::kRowMajor});
    files_.push_back(std::make_shared<MemorySource>(std::move(bytes), name));
    return *this;
  }
  Builder& number(const std::string& name, int64_t value) {
    pickle::Builder builder;
    const pickle::Value* root = builder.integer(value);
    auto document = std::make_shared<const pickle::Document>(builder.finish(root));
    objects_.push_back({document, &document->root(), nullptr});
    catalog_.add_object(name);
    return *this;
  }
  std::shared_ptr<const Checkpoint> make() {
    return Checkpoint::in_memory(std::move(catalog_), std::move(files_), std::move(objects_));
  }

 private:
  Catalog catalog_;
  std::vector<std::shared_ptr<const ByteSource>> files_;
  std::vector<ObjectValue> objects_;
};

std::shared_ptr<const Checkpoint> vector_of(const std::vector<float>& values) {
  return Builder().tensor("w", DType::kFloat32, {static_cast<int64_t>(values.size())}, values).make();
}

DiffOptions tolerance(double rtol, double atol) {
  DiffOptions options;
  options.rtol = rtol;
  options.atol = atol;
  return options;
}

TEST(Diff, FindsNothingBetweenEqualCheckpoints) {
  const auto a = Checkpoint::open(TestCheckpoint("dcp/fsdp_2rank/ckpt").where);
  const auto b = Checkpoint::open(TestCheckpoint("dcp/fsdp_2rank/ckpt").where);
  const DiffReport report = diff(a, b);
  EXPECT_TRUE(report.equal());
  EXPECT_EQ(report.tensors_compared, static_cast<int64_t>(a->catalog().tensors().size()));
  EXPECT_EQ(report.objects_compared, static_cast<int64_t>(a->catalog().objects().size()));
}

TEST(Diff, ComparesAcrossFormats) {
  const TestCheckpoint files("dcp/torch_save_files"), folder("dcp/torch_save_files/ckpt");
  const auto pth = Checkpoint::open(StorageLocation{files.where.storage, files.path("from_dcp.pth")});
  EXPECT_TRUE(diff(pth, Checkpoint::open(folder.where)).equal());
}

TEST(Diff, ReportsMissingExtraKindShapeAndDTypeInOrder) {
  const std::vector<float> four = {1, 2, 3, 4};
  const auto a = Builder()
                     .tensor("gone", DType::kFloat32, {4}, four)
                     .tensor("kind", DType::kFloat32, {4}, four)
                     .tensor("shape", DType::kFloat32, {4}, four)
                     .tensor("dtype", DType::kFloat32, {4}, four)
                     .number("step", 1)
                     .make();
  const auto b = Builder()
                     .tensor("new", DType::kFloat32, {4}, four)
                     .tensor("dtype", DType::kInt32, {4}, four)
                     .tensor("shape", DType::kFloat32, {2, 2}, four)
                     .number("kind", 4)
                     .number("step", 2)
                     .make();
  std::vector<std::string> found;
  for (const Difference& d : diff(a, b).differences) {
    found.push_back(std::string(difference_kind_name(d.kind)) + " " + d.name + ": " + d.a + " | " + d.b);
  }
  EXPECT_THAT(found,
              ElementsAre("only_in_a gone: [4] float32 | ", "kind kind: [4] float32 | object",
                          "shape shape: [4] float32 | [2, 2] float32", "dtype dtype: [4] float32 | [4] int32",
                          "values step: 1 | 2", "only_in_b new:  | [4] float32"));
}

TEST(Diff, SaysHowManyHowFarAndWhereFirst) {
  std::vector<float> values(12), other;
  std::iota(values.begin(), values.end(), 1.0F);
  other = values;
  other[7] = 10;   // was 8
  other[11] = 11;  // was 12
  const auto a = Builder().tensor("w", DType::kFloat32, {3, 4}, values).make();
  const auto b = Builder().tensor("w", DType::kFloat32, {3, 4}, other).make();
  const DiffReport report = diff(a, b);
  ASSERT_EQ(report.differences.size(), 1u);
  const Difference& found = report.differences[0];
  EXPECT_EQ(found.num_different, 2);
  EXPECT_EQ(found.max_abs, 2);
  EXPECT_EQ(found.max_rel, 0.2);
  EXPECT_THAT(found.first_index, ElementsAre(1, 3));
  EXPECT_EQ(found.a, "8");
  EXPECT_EQ(found.b, "10");
}

TEST(Diff, ComparesBitsWithoutATolerance) {
  EXPECT_TRUE(diff(vector_of({kNanF}), vector_of({kNanF})).equal());
  EXPECT_FALSE(diff(vector_of({0.0F}), vector_of({-0.0F})).equal());
  EXPECT_EQ(diff(vector_of({0.0F}), vector_of({-0.0F})).differences[0].max_abs, 0);
}

TEST(Diff, AllowsWhatTheToleranceAllows) {
  const auto a = vector_of({1, 100, 0}), b = vector_of({1.001F, 100.1F, 0.0001F});
  EXPECT_FALSE(diff(a, b).equal());
  EXPECT_TRUE(diff(a, b, tolerance(0.002, 0.001)).equal());
  EXPECT_EQ(diff(a, b, tolerance(0.002, 0)).differences[0].num_different, 1);
  EXPECT_TRUE(std::isinf(diff(vector_of({1}), vector_of({0}), tolerance(0.1, 0.1)).differences[0].max_rel));
}

TEST(Diff, TreatsNanAndInfinityAsValuesOfTheirOwn) {
  EXPECT_TRUE(diff(vector_of({kNanF, kInfF}), vector_of({kNanF, kInfF}), tolerance(0, 0)).equal());
  for (const auto& [a, b] :
       std::vector<std::pair<float, float>>{{kNanF, 1}, {1, kNanF}, {kInfF, 1e30F}, {kInfF, -kInfF}}) {
    EXPECT_FALSE(diff(vector_of({a}), vector_of({b}), tolerance(1e9, 1e9)).equal()) << a << " " << b;
  }
}

TEST(Diff, ComparesDifferentDTypesOnlyWithATolerance) {
  const auto full = Builder().tensor<float>("w", DType::kFloat32, {2}, {1.0F, 1.001F}).make();
  const auto half = Builder().tensor<uint16_t>("w", DType::kBFloat16, {2}, {0x3f80, 0x3f80}).make();
  EXPECT_EQ(diff(full, half).differences[0].kind, Difference::Kind::kDType);
  EXPECT_TRUE(diff(full, half, tolerance(0.01, 0)).equal());
  const auto complex = Builder().tensor<float>("w", DType::kComplex64, {2}, {1, 0, 1, 0}).make();
  EXPECT_EQ(diff(full, complex, tolerance(1, 1)).differences[0].kind, Difference::Kind::kDType);
}

TEST(Diff, LooksAtBothPartsOfComplexNumbers) {
  const auto a = Builder().tensor<float>("w", DType::kComplex64, {2}, {1, 2, 3, 4}).make();
  const auto b = Builder().tensor<float>("w", DType::kComplex64, {2}, {1, 2, 3, 5}).make();
  for (const DiffReport& report : {diff(a, b), diff(a, b, tolerance(0, 0.5))}) {
    ASSERT_FALSE(report.equal());
    EXPECT_EQ(report.differences[0].num_different, 1);
    EXPECT_EQ(report.differences[0].max_abs, 1);
    EXPECT_EQ(report.differences[0].a, "(3, 4)");
  }
  EXPECT_TRUE(diff(a, b, tolerance(0, 1)).equal());
}

TEST(Diff, MeasuresComplexNumbersInThePlane) {
  const auto number = [](float real, float imaginary) {
    return Builder().tensor<float>("w", DType::kComplex64, {1}, {real, imaginary}).make();
  };
  const DiffReport report = diff(number(0, 0), number(3, 4), tolerance(0, 4.5));
  ASSERT_FALSE(report.equal());
  EXPECT_EQ(report.differences[0].max_abs, 5);
  EXPECT_EQ(report.differences[0].max_rel, 1);
  EXPECT_TRUE(diff(number(0, 0), number(3, 4), tolerance(0, 5)).equal());
  EXPECT_TRUE(diff(number(10, 1), number(10, 0), tolerance(0.1, 0)).equal());
  EXPECT_TRUE(diff(number(kNanF, 0), number(1, kNanF), tolerance(0, 0)).equal());
  EXPECT_FALSE(diff(number(kNanF, 0), number(1, 0), tolerance(9, 9)).equal());
  EXPECT_FALSE(diff(number(kInfF, 0), number(kInfF, 1), tolerance(9, 9)).equal());
}

TEST(Diff, MergesPiecesTheSameOnAnyNumberOfThreads) {
  std::vector<float> values(3'000'000), other;
  std::iota(values.begin(), values.end(), 0.0F);
  other = values;
  other[2'999'999] += 8;
  other[1'500'000] += 2;
  other[600'000] += 4;
  const auto a = Builder().tensor("w", DType::kFloat32, {3000, 1000}, values).make();
  const auto b = Builder().tensor("w", DType::kFloat32, {3000, 1000}, other).make();
  for (int threads : {1, 4}) {
    DiffOptions options;
    options.num_threads = threads;
    const DiffReport report = diff(a, b, options);
    ASSERT_EQ(report.differences.size(), 1u);
    EXPECT_EQ(report.differences[0].num_different, 3);
    EXPECT_EQ(report.differences[0].max_abs, 8);
    EXPECT_THAT(report.differences[0].first_index, ElementsAre(600, 0));
  }
}

TEST(Diff, HandlesScalarsEmptyAndPackedTensors) {
  const auto make = [](uint8_t last) {
    return Builder()
        .tensor<float>("scalar", DType::kFloat32, {}, {2})
        .tensor<float>("empty", DType::kFloat32, {0, 3}, {})
        .tensor<uint8_t>("f4", DType::kFloat4E2M1FNx2, {2}, {1, last})
        .tensor<uint8_t>("f6", DType::kFloat6E2M3, {4}, {1, 2, last})
        .make();
  };
  EXPECT_TRUE(diff(make(3), make(3)).equal());
  const DiffReport report = diff(make(3), make(4), tolerance(1, 1));
  ASSERT_EQ(report.differences.size(), 2u);
  EXPECT_EQ(report.differences[0].a, "0x03");
  EXPECT_THAT(report.differences[0].first_index, ElementsAre(1));
  EXPECT_THAT(report.differences[1].first_index, ElementsAre(2));  // the byte holds parts of elements 2 and 3
}

TEST(Diff, ComparesOnlyWhatMatches) {
  const auto a = Builder().number("a.x", 1).number("b.x", 1).make(),
             b = Builder().number("a.x", 1).number("b.x", 2).make();
  DiffOptions options;
  options.match = {"a.*"};
  EXPECT_TRUE(diff(a, b, options).equal());
  options.match = {"a.*", "b.*"};
  EXPECT_FALSE(diff(a, b, options).equal());
}

TEST(Diff, RefusesAGlobThatMatchesNothing) {
  const auto a = Builder().number("a.x", 1).make(), b = Builder().number("b.x", 1).make();
  DiffOptions options;
  options.match = {"b.*"};
  EXPECT_FALSE(diff(a, b, options).equal());
  options.match = {"b.*", "c.*"};
  EXPECT_THROW(diff(a, b, options), ValueError);
}

TEST(Diff, RefusesToleranceThatIsNoNumber) {
  const auto a = vector_of({1});
  EXPECT_THROW(diff(a, a, tolerance(-1, 0)), ValueError);
  EXPECT_THROW(diff(a, a, tolerance(0, kNan)), ValueError);
}

TEST(Diff, ThrowsWhenOneSideIsDamaged) {
  const TestCheckpoint damaged("bad/data-file-missing/ckpt");
  const auto checkpoint = Checkpoint::open(damaged.where);
  try {
    diff(checkpoint, checkpoint);
    FAIL();
  } catch (const FormatError& error) {
    EXPECT_EQ(error.code(), ErrorCode::kMissingFile);
    EXPECT_EQ(error.key(), "w");
  }
}

}  // namespace
}  // namespace milepost
