#include "milepost/manager/entries.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "milepost/base/error.h"
#include "milepost/manager/fit.h"

namespace milepost::manager {
namespace {

using pickle::Kind;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Entries, HaveTorchTitansNames) {
  EXPECT_EQ(optimizer_state_key("layers.0.w", "exp_avg"), "optimizer.state.layers.0.w.exp_avg");
  EXPECT_EQ(param_group_key("layers.0.w", "lr"), "optimizer.param_groups.layers.0.w.lr");
  EXPECT_EQ(data_rank_key(3), "dataloader.dp_rank_3");
  EXPECT_EQ(rng_key(3), "milepost.rng.rank_3");
  EXPECT_EQ(entry_path("layers.0.w"), (KeyPath{"layers.0.w"}));
  EXPECT_EQ(entry_path("optimizer.state.w.step"), (KeyPath{"optimizer", "state.w.step"}));
}

const AdamGroup kGroup{.fused = false,
                       .foreach = true,
                       .lr = 1e-3,
                       .beta1 = 0.9,
                       .beta2 = 0.95,
                       .eps = 1e-8,
                       .weight_decay = 0.1,
                       .decoupled_weight_decay = true,
                       .initial_lr = 5e-3};

TEST(Entries, OptionsOfAdamGoBothWays) {
  pickle::Builder builder;
  const auto values = adam_values(builder, kGroup);
  const pickle::Document document = builder.finish(builder.list(values));
  AdamGroup read;
  for (size_t i = 0; i < values.size(); ++i) {
    read_adam_option("w", kAdamOptions[i], document.root().item(static_cast<int64_t>(i)), &read);
  }
  EXPECT_EQ(read.fused, kGroup.fused);
  EXPECT_EQ(read.foreach, kGroup.foreach);
  EXPECT_EQ(read.lr, kGroup.lr);
  EXPECT_EQ(read.beta1, kGroup.beta1);
  EXPECT_EQ(read.beta2, kGroup.beta2);
  EXPECT_EQ(read.eps, kGroup.eps);
  EXPECT_EQ(read.weight_decay, kGroup.weight_decay);
  EXPECT_EQ(read.initial_lr, kGroup.initial_lr);
  EXPECT_EQ(document.root().item(3).kind(), Kind::kTuple);  // betas
}

TEST(Entries, ValuesOfOtherTypesAreRefused) {
  pickle::Builder builder;
  const pickle::Value* items[] = {builder.string("x"), builder.integer(-1), builder.boolean(true)};
  const pickle::Document document = builder.finish(builder.list(items));
  const pickle::Value &text = document.root().item(0), &negative = document.root().item(1),
                      &yes = document.root().item(2);
  AdamGroup group;
  for (std::string_view option : kAdamOptions) {
    EXPECT_THROW(read_adam_option("w", option, text, &group), FormatError) << option;
  }
  EXPECT_THROW(read_adam_option("w", "amsgrad", yes, &group), FormatError);
  EXPECT_NO_THROW(read_adam_option("w", "capturable", yes, &group));
  EXPECT_THROW(read_count("k", negative), FormatError);
  EXPECT_THROW(read_count("k", yes), FormatError);
  EXPECT_THROW(read_text("k", negative), FormatError);
  EXPECT_EQ(read_text("k", text), "x");
}

TEST(Entries, SeedsOfRanksThatWereNotSavedNeverChange) {
  EXPECT_EQ(seed_of_rank("state", 3), 13037905979075768593u);
  EXPECT_NE(seed_of_rank("state", 4), seed_of_rank("state", 3));
  EXPECT_NE(seed_of_rank("other", 3), seed_of_rank("state", 3));
}

Catalog catalog() {
  Catalog catalog;
  catalog.add_tensor("a", DType::kFloat32, Dims{2, 3});
  catalog.add_tensor("b", DType::kFloat32, Dims{2});
  catalog.add_tensor("optimizer.state.b.step", DType::kFloat32, Dims{});
  catalog.add_object("train_state.step");
  return catalog;
}

TEST(Fit, FindsAllDifferencesAtOnce) {
  const Fit fit =
      compare(catalog(), {{"a", false, {3, 2}}, {"c", false, {1}}, {"train_state.step", false, {}}}, true);
  EXPECT_THAT(fit.missing, ElementsAre("c"));
  EXPECT_THAT(fit.mismatched, ElementsAre("a: saved [2, 3], wanted [3, 2]",
                                          "train_state.step: saved as a value, wanted as a tensor"));
  EXPECT_THAT(fit.unexpected, ElementsAre("b"));
  try {
    require_fit(fit, "/x/step-1");
    FAIL();
  } catch (const ShapeMismatchError& error) {
    EXPECT_EQ(error.path(), "/x/step-1");
    EXPECT_THAT(error.summary(), HasSubstr("missing in the checkpoint (1):\n    c\n  of another shape (2):"));
  }
}

TEST(Fit, MissingEntriesAloneAreNamed) {
  const Fit fit = compare(catalog(), {{"c", false, {1}}, {"lr_scheduler.last_epoch", true}}, false);
  EXPECT_TRUE(fit.unexpected.empty());
  EXPECT_THROW(require_fit(fit, "p"), MissingKeyError);
}

TEST(Fit, WhatIsNotWantedIsNoError) {
  EXPECT_NO_THROW(require_fit(compare(catalog(), {{"a", false, {2, 3}}}, true), "p"));
}

TEST(Fit, LongListsAreCut) {
  std::vector<WantedEntry> wanted;
  for (int i = 0; i < 100; ++i) wanted.push_back({"layers." + std::to_string(i), false, {}});
  try {
    require_fit(compare(catalog(), wanted, false), "p");
    FAIL();
  } catch (const MissingKeyError& error) {
    EXPECT_THAT(error.summary(), HasSubstr("and 80 more"));
    EXPECT_EQ(error.hint(),
              "start the job with the model that was saved");  // of which nothing can be left out
  }
  EXPECT_EQ(names_text({"a", "b", "c"}, 2), "a, b and 1 more");
  EXPECT_EQ(names_text({"a", "b"}, 2), "a, b");
}

}  // namespace
}  // namespace milepost::manager
