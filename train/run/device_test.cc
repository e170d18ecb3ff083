#include "train/run/device.h"

#include <gtest/gtest.h>

#include "milepost/base/error.h"
#include "train/torch.h"

namespace milepost::train {
namespace {

TEST(FindDevice, KnowsTheCpu) {
  EXPECT_TRUE(find_device("cpu").is_cpu());
  EXPECT_EQ(device_word(at::kCPU), "CPU");
}

TEST(FindDevice, RefusesWhatIsNoDevice) {
  EXPECT_THROW(find_device("toaster"), ValueError);
  EXPECT_THROW(find_device(""), ValueError);
}

TEST(FindDevice, RefusesWhatLibtorchOrTheMachineHasNot) { EXPECT_THROW(find_device("cuda:63"), ValueError); }

TEST(ListedPeakFlops, GoesByTheName) {
  EXPECT_EQ(listed_peak_flops("NVIDIA H100 80GB HBM3"), 989e12);
  EXPECT_EQ(listed_peak_flops("NVIDIA H100 NVL"), 835e12);
  EXPECT_EQ(listed_peak_flops("NVIDIA H100 PCIe"), 756e12);
  EXPECT_EQ(listed_peak_flops("NVIDIA H200"), 989e12);
  EXPECT_EQ(listed_peak_flops("NVIDIA H20"), 148e12);
  EXPECT_EQ(listed_peak_flops("NVIDIA GB200"), 2.5e15);
  EXPECT_EQ(listed_peak_flops("a CPU"), 0);
}

TEST(PeakFlops, AreMeasuredOnACpu) { EXPECT_GT(peak_flops(at::kCPU, at::kFloat).per_second, 1e8); }

}  // namespace
}  // namespace milepost::train
