#include "train/models/deepseek_v3/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "milepost/base/error.h"
#include "milepost/config/registry.h"
#include "train/models/loss.h"

namespace milepost::train {
namespace {

TEST(ModelSize, IsWhatTorchTitanCounts) {
  const std::map<std::string, std::pair<int64_t, int64_t>> expected = {
      {"llama3 debugmodel", {6'163'712, 71'585'280}},
      {"llama3 1B", {1'235'814'400, 8'220'192'768}},
      {"llama3 3B", {3'212'749'824, 21'390'428'160}},
      {"llama3 8B", {8'030'261'248, 48'250'773'504}},
      {"llama3 70B", {70'553'706'496, 433'124'327'424}},
      {"llama3 405B", {405'853'388'800, 2'473'246'556'160}},
      {"deepseek_v3 debugmodel", {33'014'016, 542'934'528}},
      {"deepseek_v3 16B", {15'706'484'224, 16'407'303'168}},
      {"deepseek_v3 236B", {235'741'434'880, 155'308'062'720}},
      {"deepseek_v3 671B", {671'026'404'352, 250'455'926'784}},
  };
  for (const flavor::Model& architecture : flavor::all()) {
    config::Model model;
    model.architecture = architecture;
    const ModelSize size = model_size(model, 2048);
    EXPECT_EQ(std::pair(size.num_parameters, size.flops_per_token), expected.at(architecture.text()))
        << architecture.text();
    EXPECT_EQ(size.num_parameters, flavor::num_parameters(architecture));
  }
}

}  // namespace
}  // namespace milepost::train
