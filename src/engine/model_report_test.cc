#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/test_models.h"
#include "milepost/engine/model.h"
#include "storage/test_files.h"

namespace milepost {
namespace {

using Json = nlohmann::ordered_json;

Json report_of(const CheckpointPtr& source, const NamedModel& result, const ConvertOptions& options = {}) {
  VectorSink sink;
  write_model_report(source, result, options, {}, sink);
  return Json::parse(as_text(sink.data));
}

Json target_of(const Json& report, const std::string& name) {
  for (const Json& target : report["targets"]) {
    if (target["name"] == name) return {{"from", target["from"]}, {"steps", target["steps"]}};
  }
  return {};
}

constexpr const char* kExpert = "model.layers.1.mlp.experts.2.up_proj.weight";

TEST(ModelReport, NamesEveryExpertOfAStack) {
  const std::string path = config_path("tiny_mtp");
  const CheckpointPtr source = random_model(path, DType::kBFloat16, true);
  const Json report = report_of(source, as_native(source, by_config(path), {}));
  const Json stack = target_of(report, "layers.1.moe.routed_experts.inner_experts.w3_EFD");
  const Json& from = stack["from"];
  EXPECT_EQ(from[2], kExpert);
  EXPECT_EQ(stack["steps"], Json({"dequantised from fp8", fmt::format("{} stacked", from.size())}));
  for (const Json& tensor : report["sources"]) EXPECT_EQ(tensor["fate"], "used") << tensor;
}

TEST(ModelReport, NamesTheStackOfAnExpert) {
  const std::string path = config_path("tiny_mtp");
  const TestFolder folder;
  convert(as_native(random_model(path), by_config(path), {}).checkpoint, folder / "dcp", {});
  const CheckpointPtr source = Checkpoint::open(folder / "dcp");
  const Json report = report_of(source, as_hugging_face(source, by_config(path), {}, false));
  EXPECT_EQ(target_of(report, kExpert), Json({{"from", {"layers.1.moe.routed_experts.inner_experts.w3_EFD"}},
                                              {"steps", {"slice 2 of its stack"}}}));
}

// Naming all experts for each would make gigabytes of the largest model's report.
TEST(ModelReport, NamesOneExpertForOneThatIsOnlyDequantised) {
  const std::string path = config_path("tiny_mtp");
  const CheckpointPtr source = random_model(path, DType::kBFloat16, true);
  const Json report = report_of(source, as_hugging_face(source, by_config(path), {}, false));
  EXPECT_EQ(target_of(report, kExpert),
            Json({{"from", Json::array({kExpert})}, {"steps", Json::array({"dequantised from fp8"})}}));
  for (const Json& tensor : report["sources"]) EXPECT_EQ(tensor["fate"], "used") << tensor;
}

TEST(ModelReport, NamesTheDtypeThatIsWrittenAndTheCast) {
  const std::string path = config_path("tiny_llama3");
  const CheckpointPtr source = random_model(path, DType::kBFloat16);
  ConvertOptions options;
  options.dtype = DType::kFloat32;
  const Json report = report_of(source, as_native(source, by_config(path), {}), options);
  EXPECT_EQ(target_of(report, "norm.weight")["steps"], Json::array({"cast to float32"}));
  for (const Json& target : report["targets"]) EXPECT_EQ(target["dtype"], "float32");
  for (const Json& tensor : report["sources"]) EXPECT_EQ(tensor["dtype"], "bfloat16");
}

TEST(ModelReport, NamesOnlyWhatIsWritten) {
  const std::string path = config_path("tiny_llama3");
  const CheckpointPtr source = random_model(path);
  ConvertOptions options;
  options.match = {"*.1.attention.wo.weight"};
  const Json report = report_of(source, as_native(source, by_config(path), {}), options);
  EXPECT_EQ(report["targets"].size(), 1);
  for (const Json& tensor : report["sources"]) {
    EXPECT_EQ(tensor["fate"],
              tensor["name"] == "model.layers.1.self_attn.o_proj.weight" ? "used" : "left out");
  }
}

}  // namespace
}  // namespace milepost
