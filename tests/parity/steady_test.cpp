// SPDX-License-Identifier: Apache-2.0
//
// A training program is steady after its first step - no new decisions, no new plans, the same
// collectives every step - and a GPT needs no implied gather, so strict mode lets it pass.
#include <gtest/gtest.h>
#include <torch/torch.h>

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
