// SPDX-License-Identifier: Apache-2.0
//
// Batches that are read in parts, by one process. As several: tests/processes/data_test.cpp.
#include <meshtorch/train/microbatch.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <meshtorch/tensor/meta.h>
#include <meshtorch/tensor/runtime.h>
#include <meshtorch/tensor/scope.h>
#include <meshtorch/tensor/sharding.h>
#include <meshtorch/tensor/testing.h>

namespace meshtorch {
namespace {

RowSource rows_of(const Batch& batch) {
  return {.rows = batch.inputs.size(0), .read = [batch](std::int64_t begin, std::int64_t end) {
            return Batch{batch.inputs.slice(0, begin, end), batch.targets.slice(0, begin, end)};
          }};
}

void expect_equal(const std::vector<Microbatch>& got, const std::vector<Microbatch>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].weight(), expected[i].weight());
    EXPECT_EQ(sharding_of(got[i].inputs), sharding_of(expected[i].inputs));
    EXPECT_TRUE(torch::equal(full(got[i].inputs), full(expected[i].inputs)));
    EXPECT_TRUE(torch::equal(full(got[i].targets), full(expected[i].targets)));
  }
}

class Microbatches : public testing::Test {
 protected:
  Runtime runtime{{.devices = 8}};
  Mesh mesh = runtime.make_mesh({{"dp", 4}, {"tp", 2}});
};

TEST_F(Microbatches, RowsMakeThoseOfTheWholeBatch) {
  const auto inputs = torch::randn({13, 6});
  auto targets = torch::randint(5, {13, 6}, torch::kLong);
  targets.slice(0, 4, 8).fill_(7);
  targets.slice(1, 0, 2).fill_(7);
  const mode_scope strict(Mode::strict);
  for (const P& spec : {P(), P("dp"), P("dp", "tp"), P(whole, "tp"), P(axes("dp", "tp"))}) {
    for (const std::int64_t count : {1, 3, 4, 13}) {
      expect_equal(
          microbatches(rows_of({inputs, targets}), count, {mesh, spec}, {.ignore_index = 7}),
          microbatches({inputs, targets}, count, {mesh, spec}, {.ignore_index = 7}));
    }
  }
}

TEST_F(Microbatches, TargetsThatAreNoClassesAreNotCounted) {
  const Batch batch{torch::randn({9, 2}), torch::full({9, 2}, -100.0)};
  runtime.ledger().clear();
  const auto micros = microbatches(rows_of(batch), 2, {mesh, P("dp")});
  EXPECT_TRUE(runtime.ledger().entries().empty()) << runtime.ledger().to_string();
  ASSERT_EQ(micros.size(), 2u);
  EXPECT_EQ(micros[0].weight(), 5.0 / 9);
  EXPECT_EQ(micros[1].weight(), 4.0 / 9);
}

TEST_F(Microbatches, LossesDivideByTheCountWithoutASum) {
  const Batch batch{torch::randn({8, 5}), torch::tensor({0, 1, -100, 3, 4, -100, 1, 2})};
  const auto micro = microbatches(rows_of(batch), 1, {mesh, P("dp")}).at(0);
  runtime.ledger().clear();
  const auto loss = torch::nn::functional::cross_entropy(micro.inputs, micro.targets);
  EXPECT_TRUE(runtime.ledger().entries().empty()) << runtime.ledger().to_string();
  const auto expected = torch::nn::functional::cross_entropy(batch.inputs, batch.targets);
  EXPECT_NEAR(loss.item<double>(), expected.item<double>(), 1e-6);
}

TEST_F(Microbatches, RowsErrors) {
  const Batch batch{torch::zeros({8, 2}), torch::zeros({8}, torch::kLong)};
  const auto complaint = [&](const RowSource& source, std::int64_t count = 2) {
    return message([&] { microbatches(source, count, {mesh, P("dp")}); });
  };
  const auto reads = [](const at::Tensor& inputs, const at::Tensor& targets) {
    return RowSource{.rows = 8, .read = [=](std::int64_t, std::int64_t) {
                       return Batch{inputs, targets};
                     }};
  };
  EXPECT_EQ(complaint({.rows = 8}),
            "[microbatches] source: has no read; give a function of the rows");
  EXPECT_EQ(
      complaint(rows_of(batch), 9),
      "[microbatches] count: got 9, expected 1 to the batch size 8; use fewer microbatches or a "
      "larger batch");
  EXPECT_EQ(complaint(reads(batch.inputs, batch.targets)),
            "[microbatches] rows [0, 4): read gave 8 rows; give those of the range");
  EXPECT_EQ(complaint(reads(batch.inputs.slice(0, 0, 4), batch.targets)),
            "[microbatches] rows [0, 4): inputs have 4 rows, targets 8; give as many of both");
  EXPECT_EQ(complaint(reads(batch.inputs, {})),
            "[microbatches] rows [0, 4): expected inputs and targets with a batch dim; give both");
  EXPECT_EQ(complaint(rows_of({batch.inputs, torch::full({8}, -100, torch::kLong)})),
            "[microbatches] targets: every one is ignored (-100); give a batch with valid targets");
}

TEST(MicrobatchesOfADryRun, HaveRowsAndNoValues) {
  Runtime runtime({.devices = 8, .meta = true});
  const Mesh mesh = runtime.make_mesh({{"dp", 8}});
  const Batch batch{torch::zeros({16, 2}), torch::zeros({16}, torch::kLong)};
  const auto micros = microbatches(rows_of(batch), 4, {mesh, P("dp")});
  ASSERT_EQ(micros.size(), 4u);
  EXPECT_EQ(micros[0].weight(), 0.25);
  EXPECT_TRUE(is_meta(micros[0].inputs));
  EXPECT_EQ(micros[0].inputs.sizes(), (torch::IntArrayRef{4, 2}));
  ASSERT_EQ(runtime.ledger().entries().size(), 1u) << runtime.ledger().to_string();
  EXPECT_EQ(runtime.ledger().entries()[0].scope, "microbatches");
}

}  // namespace
}  // namespace meshtorch
