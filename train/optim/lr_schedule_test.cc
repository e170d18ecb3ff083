#include <gtest/gtest.h>

#include <cmath>

#include "train/optim/optimizer.h"

namespace milepost::train {
namespace {

using Factors = std::vector<double>;

Factors factors(const config::LrScheduler& options, int64_t steps) {
  const LrSchedule schedule(options, steps);
  Factors result;
  for (int64_t i = 0; i < steps; ++i) result.push_back(std::round(schedule.factor(i) * 1e6) / 1e6);
  return result;
}

config::LrScheduler options_of(int64_t warmup, std::optional<double> ratio, double min_factor = 0) {
  config::LrScheduler options;
  options.warmup_steps = warmup;
  options.decay_ratio = ratio;
  options.min_lr_factor = min_factor;
  return options;
}

TEST(LrSchedule, GivesTorchTitansFactors) {
  EXPECT_EQ(factors(options_of(2, 0.8), 10), (Factors{.5, 1, 1, .875, .75, .625, .5, .375, .25, .125}));
  config::LrScheduler cosine = options_of(2, {}, 0.1);
  cosine.decay_type = "cosine";
  EXPECT_EQ(factors(cosine, 10),
            (Factors{.5, 1, 1, .965746, .868198, .722208, .55, .377792, .231802, .134254}));
  config::LrScheduler root = options_of(2, 0.5, 0.1);
  root.decay_type = "sqrt";
  EXPECT_EQ(factors(root, 10), (Factors{.5, 1, 1, 1, 1, 1, .597508, .43079, .302863, .195016}));
  EXPECT_EQ(factors(options_of(200, {}), 10), (Factors{.1, .2, .3, .4, .5, .6, .7, .8, .9, 1}));
}

TEST(LrSchedule, WarnsOfWhatItShortens) {
  EXPECT_EQ(LrSchedule(options_of(200, {}), 10).warnings(),
            (std::vector<std::string>{
                "Warmup steps (200) exceed total steps (10). Adjusting warmup steps to 10."}));
  EXPECT_EQ(LrSchedule(options_of(4, 0.8), 10).warnings(),
            (std::vector<std::string>{"Warmup (4) + decay (8) steps exceed total steps (10). Adjusting decay "
                                      "steps to 6."}));
  EXPECT_TRUE(LrSchedule(options_of(2, 0.8), 10).warnings().empty());
}

TEST(LrSchedule, RoundsHalvesToEvenAndEndsAtTheLeast) {
  // 0.25 of 10 is 2.5: two steps of decay.
  EXPECT_EQ(factors(options_of(0, 0.25), 10).back(), 0.5);
  config::LrScheduler shorter = options_of(1, {}, 0.25);
  shorter.total_steps = 3;
  EXPECT_EQ(LrSchedule(shorter, 10).factor(9), 0.25);
  EXPECT_EQ(LrSchedule(options_of(5, {}), 0).factor(0), 1);
}

TEST(LrScheduler, SetsTheRateOfEveryGroup) {
  Parameter p;
  p.name = "a";
  config::Optimizer options;
  options.param_groups.emplace_back();
  options.param_groups[0].optimizer_kwargs.lr = 2;
  Optimizer optimizer({&p}, options);
  LrScheduler scheduler(LrSchedule(options_of(2, 0.8), 10), optimizer);
  EXPECT_EQ(optimizer.groups()[0].lr, 1);
  scheduler.step();
  EXPECT_EQ(optimizer.groups()[0].lr, 2);
  scheduler.restore(6);
  EXPECT_EQ(optimizer.groups()[0].lr, 1);
  EXPECT_EQ(scheduler.last_epoch(), 6);
}

}  // namespace
}  // namespace milepost::train
