// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/cli/options.h>

#include <gtest/gtest.h>

#include <meshtorch/base/error.h>

namespace meshtorch {
namespace {

std::string complaint(const TrainOptions& options) {
  try {
    checked_mesh(options);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TrainOptions with(auto change) {
  TrainOptions options;
  change(options);
  return options;
}

TEST(TrainOptions, DefaultsAreFourByTwo) {
  EXPECT_EQ(checked_mesh({}).to_string(), "(dp=4, tp=2)");
}

TEST(TrainOptions, OtherAxesAreWelcome) {
  EXPECT_EQ(checked_mesh({.mesh = "pp=2,dp=2,tp=2"}).size(), 8);
}

TEST(TrainOptions, AMeshWithoutAnAxisItNeeds) {
  EXPECT_EQ(complaint({.mesh = "dp=4,model=2"}),
            "[train] --mesh: no axis tp in (dp=4, model=2); add tp=1 not to use it");
  EXPECT_EQ(complaint({.mesh = "tp=2"}),
            "[train] --mesh: no axis dp in (tp=2); add dp=1 not to use it");
}

TEST(TrainOptions, AMeshLargerThanTheDevices) {
  EXPECT_EQ(
      complaint({.devices = 4}),
      "[train] --mesh: (dp=4, tp=2) needs 8 devices, got 4; use --devices 8 or a smaller mesh");
}

TEST(TrainOptions, HeadsThatDoNotDivide) {
  EXPECT_EQ(
      complaint(with([](auto& o) { o.model.heads = 3; })),
      "[Gpt] heads: 3 heads do not split over the 2 devices of axis tp; use a divisor of 3 for tp");
}

TEST(TrainOptions, ABatchSmallerThanTheMicrobatches) {
  EXPECT_EQ(complaint({.microbatches = 4, .batch = 3}),
            "[train] --batch: 3 windows do not make 4 microbatches; use a larger batch or fewer "
            "microbatches");
}

TEST(TrainOptions, NumbersOutOfRange) {
  EXPECT_EQ(complaint({.devices = 0}),
            "[train] --devices: got 0, expected at least 1; use a larger number");
  EXPECT_EQ(complaint({.microbatches = 0}),
            "[train] --microbatches: got 0, expected at least 1; use a larger number");
  EXPECT_EQ(complaint({.steps = 0}),
            "[train] --steps: got 0, expected at least 1; use a larger number");
  EXPECT_EQ(complaint({.sample = -1}),
            "[train] --sample: got -1, expected at least 0; use a larger number");
  EXPECT_EQ(complaint({.validate_every = -1}),
            "[train] --validate-every: got -1, expected at least 0; use a larger number");
  EXPECT_EQ(complaint({.threads = -1}),
            "[train] --threads: got -1, expected at least 0; use a larger number");
  EXPECT_EQ(complaint({.learning_rate = 0}),
            "[train] --lr: got 0, expected a positive number; try 0.003");
}

TEST(TrainOptions, AStageThatIsNone) {
  for (int stage = 0; stage <= 3; ++stage) EXPECT_EQ(complaint({.zero = stage}), "");
  EXPECT_EQ(complaint({.zero = 4}),
            "[train] --zero: got 4, expected 0 to 3; 0: replicated, 1: optimizer state, 2: "
            "gradients too, 3: parameters too");
  EXPECT_EQ(complaint({.zero = -1}),
            "[train] --zero: got -1, expected 0 to 3; 0: replicated, 1: optimizer state, 2: "
            "gradients too, 3: parameters too");
}

TEST(TrainOptions, ALookAtTheSecondStepOfOne) {
  EXPECT_EQ(complaint({.steps = 1}), "");
  EXPECT_EQ(complaint({.steps = 1, .trace = "trace.json"}),
            "[train] --trace: is of the second step, and there is one; use --steps 2 or more");
  EXPECT_EQ(complaint({.steps = 1, .memory = true}),
            "[train] --memory: is of the second step, and there is one; use --steps 2 or more");
}

TEST(LearningRate, WarmsUpThenFallsToATwentieth) {
  const TrainOptions options{.learning_rate = 1.0, .steps = 200};
  EXPECT_DOUBLE_EQ(learning_rate(options, 1), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate(options, 10), 1.0);
  EXPECT_NEAR(learning_rate(options, 105), 0.525, 1e-12);
  EXPECT_NEAR(learning_rate(options, 200), 0.05, 1e-12);
}

TEST(LearningRate, OfOneStepIsThePeak) {
  EXPECT_DOUBLE_EQ(learning_rate({.learning_rate = 0.5, .steps = 1}, 1), 0.5);
}

}  // namespace
}  // namespace meshtorch
