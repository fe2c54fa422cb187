// SPDX-License-Identifier: Apache-2.0
//
// A training program is steady after its first step - no new decisions, no new plans, the same
// collectives every step - and a GPT needs no implied gather, so strict mode lets it pass.
#include <gtest/gtest.h>
#include <torch/torch.h>
#include <unistd.h>

#include <fstream>

#include <meshtorch/meshtorch.h>
#include <meshtorch/models/gpt.h>
#include <meshtorch/tensor/dispatch.h>

namespace mt = meshtorch;
using mt::P;

namespace {

struct Training {
  explicit Training(mt::Runtime& runtime, double dropout = 0.1)
      : options{.vocabulary = 32,
                .length = 16,
                .width = 32,
                .layers = 2,
                .heads = 4,
                .dropout = dropout},
        mesh(runtime.make_mesh({{"dp", 4}, {"tp", 2}})),
        model(options) {
    mt::shard(*model, mesh, mt::gpt_sharding());
    optimizer = std::make_unique<mt::Zero<torch::optim::AdamW>>(
        model->parameters(), mt::ZeroOptions{.axis = "dp", .clip_norm = 1.0},
        torch::optim::AdamWOptions(1e-3));
  }

  void step(std::int64_t count) {
    const auto tokens = torch::randint(options.vocabulary, {16, options.length + 1}, torch::kLong);
    const mt::Batch batch{tokens.slice(1, 0, options.length).contiguous(),
                          tokens.slice(1, 1).contiguous()};
    for (const auto& micro : mt::microbatches(batch, count, {mesh, P("dp")})) {
      mt::named_scope scope("microbatch");
      (model->loss(micro.inputs, micro.targets) * micro.weight()).backward();
    }
    optimizer->step();
    optimizer->zero_grad();
  }

  mt::GptOptions options;
  mt::Mesh mesh;
  mt::Gpt model;
  std::unique_ptr<mt::Zero<torch::optim::AdamW>> optimizer;
};

TEST(Steady, NothingGrowsAfterTheFirstStep) {
  mt::Runtime runtime({.devices = 8});
  Training training(runtime);
  training.step(4);
  const auto decisions = runtime.dispatch().cached_decisions();
  const auto plans = runtime.plans().size();
  runtime.ledger().clear();
  training.step(4);
  const auto collectives = runtime.ledger().entries().size();
  for (int step = 0; step < 5; ++step) training.step(4);
  EXPECT_EQ(runtime.dispatch().cached_decisions(), decisions);
  EXPECT_EQ(runtime.plans().size(), plans);
  EXPECT_EQ(runtime.ledger().entries().size(), 6 * collectives);
}

// Pages that the process holds in memory, in bytes.
std::int64_t resident() {
  std::ifstream file("/proc/self/statm");
  std::int64_t total = 0, pages = 0;
  file >> total >> pages;
  return pages * sysconf(_SC_PAGESIZE);
}

// Everything that changes from step to step does: the part of the data, the learning rate, numbers in
// expressions, a row that is picked, a random offset.
TEST(Steady, NothingGrowsOverTenThousandSteps) {
  mt::Runtime runtime({.devices = 4});
  const auto mesh = runtime.make_mesh({{"dp", 2}, {"tp", 2}});
  constexpr std::int64_t kRows = 512, kBatch = 8;
  const auto x = mt::device_put(torch::randn({kRows, 6}), {mesh, P(mt::whole, "tp")});
  const auto y = mt::device_put(torch::randn({kRows, 4}), {mesh, P()});
  torch::nn::Linear model(6, 4);
  mt::shard(*model, mesh, mt::PathRules({{"weight", P(mt::whole, "tp")}, {"bias", P()}}));
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  const auto step = [&](std::int64_t i) {
    const std::int64_t at = i * 7 % (kRows - kBatch);
    const auto batch = x.slice(0, at, at + kBatch), wanted = y.narrow(0, at, kBatch);
    static_cast<torch::optim::SGDOptions&>(optimizer.param_groups()[0].options())
        .lr(0.01 / (1.0 + static_cast<double>(i)));
    auto loss =
        torch::mse_loss(model->forward(batch), wanted) * (1.0 + 1e-3 * static_cast<double>(i));
    loss = loss + x.select(0, at).roll(i % 5, 0).square().sum() * 1e-9 + x[at][i % 6] * 1e-9;
    optimizer.zero_grad();
    loss.backward();
    torch::nn::utils::clip_grad_norm_(model->parameters(), 1.0 + 1e-4 * static_cast<double>(i));
    optimizer.step();
  };
  for (std::int64_t i = 0; i < 200; ++i) {
    step(i);
    runtime.ledger().clear();
  }
  const auto decisions = runtime.dispatch().cached_decisions();
  const auto plans = runtime.plans().size();
  step(200);
  const auto collectives = runtime.ledger().entries().size();
  const auto memory = resident();
  for (std::int64_t i = 201; i < 10000; ++i) {
    runtime.ledger().clear();
    step(i);
    ASSERT_EQ(runtime.ledger().entries().size(), collectives) << i;
  }
  EXPECT_EQ(runtime.dispatch().cached_decisions(), decisions);
  EXPECT_EQ(runtime.plans().size(), plans);
  EXPECT_LT(resident() - memory, 4 << 20);
}

TEST(Steady, AGptNeedsNoImpliedGather) {
  mt::Runtime runtime({.devices = 8, .mode = mt::Mode::strict});
  Training training(runtime);
  training.step(4);
  EXPECT_EQ(
      runtime.ledger().count([](const auto& entry) { return entry.origin == mt::Origin::implied; }),
      0);
  EXPECT_TRUE(runtime.fallbacks().empty());
}

// Megatron's count, stated in arXiv 1909.08053 section 3: two all-reduces forward and two backward a
// layer. Around the layers: the embedding's sum; the loss's maximum and sum, and one sum in its
// backward; the sum of the gradient that enters the last norm from the sharded head.
TEST(Steady, TensorParallelCollectivesAreMegatrons) {
  mt::Runtime runtime({.devices = 8});
  Training training(runtime);
  training.step(1);
  runtime.ledger().clear();
  constexpr std::int64_t kMicrobatches = 4, kLayers = 2;
  training.step(kMicrobatches);
  const auto tp = runtime.ledger().count([](const auto& entry) { return entry.axes == "tp"; });
  EXPECT_EQ(tp, kMicrobatches * (4 * kLayers + 1 + 3 + 1)) << runtime.ledger().to_string();
  EXPECT_EQ(runtime.ledger().count([](const auto& entry) {
    return entry.scope == "microbatch" && entry.axes.find("dp") != std::string::npos;
  }),
            0)
      << runtime.ledger().to_string();
}

}  // namespace
