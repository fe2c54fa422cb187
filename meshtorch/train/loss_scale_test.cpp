// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/train/loss_scale.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>
#include <random>

#include <meshtorch/base/testing.h>

namespace meshtorch {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

TEST(LossScale, StepsByHand) {
  LossScale scale({.init = 8, .growth = 4, .backoff = 0.25, .interval = 3});
  const struct {
    bool finite;
    double scale;
    std::int64_t good_steps;
  } table[]{{true, 8, 1},   {true, 8, 2},  {true, 32, 0}, {true, 32, 1},
            {false, 8, 0},  {true, 8, 1},  {true, 8, 2},  {false, 2, 0},
            {false, .5, 0}, {true, .5, 1}, {true, .5, 2}, {true, 2, 0}};
  int step = 0;
  for (const auto& row : table) {
    scale.update(row.finite);
    EXPECT_EQ(scale.scale(), row.scale) << "step " << step;
    EXPECT_EQ(scale.state().good_steps, row.good_steps) << "step " << step;
    ++step;
  }
}

TEST(LossScale, DefaultsAreThoseOfGradScaler) {
  LossScale scale;
  EXPECT_EQ(scale.scale(), 65536);
  for (int step = 0; step < 1999; ++step) scale.update(true);
  EXPECT_EQ(scale.scale(), 65536);
  scale.update(true);
  EXPECT_EQ(scale.scale(), 131072);
  scale.update(false);
  EXPECT_EQ(scale.scale(), 65536);
}

// libtorch has the op that GradScaler calls.
TEST(LossScale, EqualsLibtorchsRule) {
  const LossScaleOptions options{.init = 1024, .growth = 2, .backoff = 0.5, .interval = 5};
  LossScale scale(options);
  auto expected = torch::full({1}, options.init, torch::kFloat);
  auto tracker = torch::zeros({1}, torch::kInt);
  std::mt19937 random(1);
  for (int step = 0; step < 2000; ++step) {
    const bool finite = random() % 8 != 0;
    scale.update(finite);
    at::_amp_update_scale_(expected, tracker, torch::full({1}, finite ? 0.0f : 1.0f),
                           options.growth, options.backoff, options.interval);
    ASSERT_EQ(scale.scale(), expected.item<double>()) << "step " << step;
    ASSERT_EQ(scale.state().good_steps, tracker.item<int>()) << "step " << step;
  }
}

TEST(LossScale, IsNeverZeroOrInfinite) {
  LossScale scale({.interval = 1});
  for (int step = 0; step < 3000; ++step) scale.update(false);
  EXPECT_EQ(scale.scale(), std::numeric_limits<float>::min());
  EXPECT_GT(static_cast<float>(scale.scale()), 0.0f);
  for (int step = 0; step < 3000; ++step) scale.update(true);
  EXPECT_EQ(scale.scale(), std::ldexp(1.0, 127));
  EXPECT_TRUE(std::isfinite(static_cast<float>(scale.scale())));
  scale.update(false);
  EXPECT_EQ(scale.scale(), std::ldexp(1.0, 126));
}

TEST(LossScale, GoesOnFromItsState) {
  const LossScaleOptions options{.init = 16, .interval = 3};
  LossScale first(options);
  for (const bool finite : {true, false, true, true}) first.update(finite);
  LossScale second(options);
  second.set_state(first.state());
  for (const bool finite : {true, true, false, true, true, true}) {
    first.update(finite);
    second.update(finite);
    EXPECT_EQ(second.state(), first.state());
  }
  EXPECT_EQ(first.state(), (LossScale::State{.scale = 16, .good_steps = 0}));
}

TEST(LossScale, Errors) {
  const auto complaint = [](const LossScaleOptions& options) {
    return message([&] { LossScale scale(options); });
  };
  const std::string remedy = "; see LossScaleOptions for what works as a rule";
  EXPECT_EQ(complaint({.init = 0}),
            "[LossScale] init: got 0, expected a number from smallest to largest" + remedy);
  EXPECT_EQ(complaint({.init = kInfinite}),
            "[LossScale] init: got inf, expected a number from smallest to largest" + remedy);
  EXPECT_EQ(complaint({.init = std::nan("")}),
            "[LossScale] init: got nan, expected a number from smallest to largest" + remedy);
  EXPECT_EQ(complaint({.growth = 1}),
            "[LossScale] growth: got 1, expected a finite number above 1" + remedy);
  EXPECT_EQ(complaint({.growth = kInfinite}),
            "[LossScale] growth: got inf, expected a finite number above 1" + remedy);
  EXPECT_EQ(complaint({.backoff = 0}),
            "[LossScale] backoff: got 0, expected a number between 0 and 1" + remedy);
  EXPECT_EQ(complaint({.backoff = 1}),
            "[LossScale] backoff: got 1, expected a number between 0 and 1" + remedy);
  EXPECT_EQ(complaint({.interval = 0}),
            "[LossScale] interval: got 0, expected at least 1" + remedy);
  EXPECT_EQ(complaint({.smallest = 0}),
            "[LossScale] smallest: got 0, expected a finite number above 0" + remedy);
  EXPECT_EQ(complaint({.largest = kInfinite}),
            "[LossScale] largest: got inf, expected a finite number, at least smallest" + remedy);
  LossScale scale({.interval = 4});
  EXPECT_EQ(message([&] { scale.set_state({.scale = 0, .good_steps = 0}); }),
            "[LossScale] state scale: got 0, expected a number from smallest to largest of the "
            "options" +
                remedy);
  EXPECT_EQ(message([&] { scale.set_state({.scale = 2, .good_steps = 4}); }),
            "[LossScale] state good_steps: got 4, expected from 0 to interval - 1 of the options" +
                remedy);
  EXPECT_EQ(scale.state(), (LossScale::State{.scale = 65536, .good_steps = 0}));
}

}  // namespace
}  // namespace meshtorch
