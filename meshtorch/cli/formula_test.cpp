// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/cli/formula.h>

#include <gtest/gtest.h>

#include <meshtorch/cli/options.h>
#include <meshtorch/meshtorch.h>
#include <meshtorch/train/explain.h>

namespace meshtorch {
namespace {

const Mesh kMesh{{"dp", 4}, {"tp", 2}};

TEST(TensorParallelTraffic, IsMegatronsCount) {
  const GptOptions model{.width = 16, .layers = 3};
  const auto traffic = tensor_parallel_traffic(kMesh, model, {.rows = 2, .length = 8});
  // An all-reduce over two devices sends what it reduces once.
  EXPECT_EQ(traffic.all_reduce, (Traffic{4 * 3 + 2, (4 * 3 + 2) * (2 * 8 * 16 * 4)}));
  EXPECT_EQ(traffic.loss, (Traffic{3, 3 * (2 * 8 * 4)}));
  EXPECT_EQ(traffic.reduce_scatter, Traffic{});
  EXPECT_EQ(traffic.all_gather, Traffic{});
}

TEST(TensorParallelTraffic, SequenceParallelismMovesTheSameBytes) {
  const GptOptions model{.width = 16, .layers = 3};
  const auto traffic = tensor_parallel_traffic(kMesh, model, {.rows = 2, .length = 8}, true);
  EXPECT_EQ(traffic.all_reduce, Traffic{});
  EXPECT_EQ(traffic.reduce_scatter, (Traffic{4 * 3 + 2, (4 * 3 + 2) * (2 * 8 * 16 * 4) / 2}));
  EXPECT_EQ(traffic.all_gather, traffic.reduce_scatter);
  EXPECT_EQ(traffic.loss, (Traffic{3, 3 * (2 * 8 * 4)}));
}

TEST(TensorParallelTraffic, OfNarrowActivationsAndWideLogits) {
  const auto traffic =
      tensor_parallel_traffic(kMesh, {.width = 16, .layers = 3},
                              {.rows = 2, .length = 8, .activation_size = 2, .logit_size = 8});
  EXPECT_EQ(traffic.all_reduce.bytes, (4 * 3 + 2) * (2 * 8 * 16 * 2));
  EXPECT_EQ(traffic.loss.bytes, 3 * (2 * 8 * 8));
}

TEST(TensorParallelTraffic, NothingOverAnAxisOfOne) {
  const Mesh mesh{{"dp", 8}, {"tp", 1}};
  EXPECT_EQ(tensor_parallel_traffic(mesh, {}, {.rows = 2, .length = 8}), TensorParallelTraffic{});
}

// Elements of the model that a device of tp=2 holds, counted by hand.
std::int64_t elements_per_device(const GptOptions& m) {
  const std::int64_t w = m.width;
  const std::int64_t cut = 2 * m.vocabulary * w + m.layers * (12 * w * w + 7 * w);
  const std::int64_t whole = m.length * w + m.layers * 6 * w + 2 * w;
  EXPECT_EQ(cut + whole, parameter_count(m));
  return cut / 2 + whole;
}

// What the report compares the ledger with, for the program's defaults: dp=4, 4 microbatches.
TEST(Schedule, OfTheDefaultsIsTheFormulaOfEachStage) {
  const TrainOptions options;
  Runtime runtime({.devices = options.devices, .meta = true});
  const Mesh mesh = runtime.make_mesh(checked_mesh(options).axes());
  const std::int64_t unit = elements_per_device(options.model) * 4 * 3 / 4;  // (d-1)/d
  for (int stage = 0; stage <= 3; ++stage) {
    SCOPED_TRACE(stage);
    Gpt model(options.model);
    shard(*model, mesh, gpt_sharding());
    Zero<torch::optim::AdamW> optimizer(model->parameters(), {.axis = "dp", .stage = stage},
                                        torch::optim::AdamWOptions(1e-3));
    const Schedule schedule = explain(optimizer.engine(), {.microbatches = options.microbatches});
    Traffic sent[3];  // by kind, in the order of Collective
    for (const Phase& phase : schedule.phases) {
      for (const PlannedCollective& one : phase.collectives) {
        EXPECT_EQ(one.axes, "dp");
        if (!one.scalar) sent[static_cast<int>(one.kind)] += {1, one.bytes};
      }
    }
    const auto& [gathered, all_reduced, scattered] = sent;
    EXPECT_EQ(all_reduced, (stage == 0 ? Traffic{1, 2 * unit} : Traffic{}));
    EXPECT_EQ(scattered.bytes, stage == 0 ? 0 : stage == 1 ? unit : 4 * unit);
    EXPECT_EQ(gathered.bytes, stage == 0 ? 0 : stage < 3 ? unit : 2 * 4 * unit);  // 3: at most
    if (stage == 1) {
      EXPECT_EQ(scattered.count, 1);
      EXPECT_EQ(gathered.count, 1);
    }
  }
}

}  // namespace
}  // namespace meshtorch
