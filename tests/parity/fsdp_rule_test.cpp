// SPDX-License-Identifier: Apache-2.0
//
// FsdpRule beside path rules on a GPT: with any optimizer, as JAX would run it, and with Zero in
// stage 3, which keeps what lies over its axis and gathers it where an op uses it.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <meshtorch/meshtorch.h>
#include <meshtorch/models/gpt.h>

namespace mt = meshtorch;
using mt::P;

namespace {

constexpr int kSteps = 12;
const mt::GptOptions kGpt{.vocabulary = 64, .length = 16, .width = 32, .layers = 2, .heads = 4};

struct Batch {
  at::Tensor inputs, targets;
};

Batch batch(int step) {
  const auto tokens = (torch::arange(17) * (1 + torch::arange(16)).unsqueeze(1) + step) % 61;
  return {tokens.slice(1, 0, 16).contiguous(), tokens.slice(1, 1).contiguous()};
}

template <class Optimizer>
std::vector<double> train(mt::Gpt& model, Optimizer& optimizer,
                          const std::optional<mt::NamedSharding>& rows) {
  std::vector<double> losses;
  for (int step = 0; step < kSteps; ++step) {
    Batch now = batch(step);
    if (rows) now = {mt::device_put(now.inputs, *rows), mt::device_put(now.targets, *rows)};
    optimizer.zero_grad();
    const auto loss = model->loss(now.inputs, now.targets);
    loss.backward();
    optimizer.step();
    losses.push_back(loss.template item<double>());
  }
  return losses;
}

mt::Gpt make_gpt() {
  torch::manual_seed(3);
  return mt::Gpt(kGpt);
}

const std::vector<double>& dense() {
  static const std::vector<double> losses = [] {
    mt::Gpt model = make_gpt();
    torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(3e-3));
    return train(model, optimizer, std::nullopt);
  }();
  return losses;
}

void expect_dense(const std::vector<double>& losses) {
  for (int step = 0; step < kSteps; ++step)
    EXPECT_NEAR(losses[static_cast<std::size_t>(step)] / dense()[static_cast<std::size_t>(step)], 1,
                2e-6)
        << "step " << step;
}

class FsdpRules : public testing::TestWithParam<std::vector<mt::MeshAxis>> {
 protected:
  mt::Rules rules() const {
    const bool tensor_parallel = mesh_.find_axis("tp") >= 0;
    const auto paths = tensor_parallel ? mt::gpt_sharding() : mt::PathRules{{"", P()}};
    return {paths, mt::FsdpRule("fsdp", {.min_size = 64})};
  }
  P rows() const { return mesh_.find_axis("dp") >= 0 ? P(mt::axes("dp", "fsdp")) : P("fsdp"); }

  mt::Runtime runtime_{mt::RuntimeOptions{.devices = 8}};
  mt::Mesh mesh_ = runtime_.make_mesh(GetParam());
};

TEST_P(FsdpRules, AnyOptimizerTrainsAsOneDevice) {
  mt::Gpt model = make_gpt();
  mt::shard(*model, mesh_, rules());
  torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(3e-3));
  expect_dense(train(model, optimizer, mt::NamedSharding{mesh_, rows()}));
}

TEST_P(FsdpRules, ZeroKeepsWhatLiesOverItsAxis) {
  mt::Gpt model = make_gpt();
  mt::shard(*model, mesh_, rules());
  const auto before = mt::sharding_of(model->parameters()[0]).spec;
  mt::Zero<torch::optim::AdamW> optimizer(model->parameters(), {.axis = "fsdp", .stage = 3},
                                          torch::optim::AdamWOptions(3e-3));
  EXPECT_EQ(mt::sharding_of(model->parameters()[0]).spec, before);
  expect_dense(train(model, optimizer, mt::NamedSharding{mesh_, rows()}));
}

// Zero that chooses for itself takes the same dims, so that a step moves the same.
TEST_P(FsdpRules, MovesWhatZeroAloneMoves) {
  std::string tables[2];
  for (const bool by_rule : {false, true}) {
    mt::Gpt model = make_gpt();
    mt::shard(
        *model, mesh_,
        by_rule ? rules() : mt::Rules(mt::gpt_sharding("tp").otherwise(mt::Unmatched::replicate)));
    mt::Zero<torch::optim::AdamW> optimizer(model->parameters(), {.axis = "fsdp", .stage = 3},
                                            torch::optim::AdamWOptions(3e-3));
    train(model, optimizer, mt::NamedSharding{mesh_, rows()});
    runtime_.ledger().clear();
    train(model, optimizer, mt::NamedSharding{mesh_, rows()});
    std::int64_t bytes = 0;
    for (const mt::LedgerEntry& entry : runtime_.ledger().entries()) bytes += entry.bytes;
    tables[by_rule] = mt::text(bytes, " bytes in ", runtime_.ledger().entries().size());
  }
  EXPECT_EQ(tables[0], tables[1]);
}

INSTANTIATE_TEST_SUITE_P(Meshes, FsdpRules,
                         testing::Values(std::vector<mt::MeshAxis>{{"fsdp", 4}, {"tp", 2}},
                                         std::vector<mt::MeshAxis>{
                                             {"dp", 2}, {"fsdp", 2}, {"tp", 2}}));

// Born sharded, in bfloat16 with fp32 masters, and never whole.
TEST(FsdpRule, BornShardedUnderAPrecision) {
  mt::Runtime runtime({.devices = 4});
  const auto mesh = runtime.make_mesh({{"fsdp", 4}});
  const mt::Rules rules{mt::PathRules{{"", P()}}, mt::FsdpRule("fsdp", {.min_size = 64})};
  torch::manual_seed(3);
  auto model = mt::init_sharded([] { return mt::Gpt(kGpt); }, mesh, rules);
  mt::Zero<torch::optim::AdamW> optimizer(
      model->parameters(),
      {.axis = "fsdp",
       .stage = 3,
       .precision = mt::Precision::parse("params=float32,compute=bfloat16")},
      torch::optim::AdamWOptions(3e-3));
  EXPECT_EQ(model->parameters()[0].scalar_type(), at::kBFloat16);
  const auto losses = train(model, optimizer, mt::NamedSharding{mesh, P("fsdp")});
  EXPECT_NEAR(losses.back() / dense().back(), 1, 0.03);
}

TEST(FsdpRule, OtherStagesSayWhatToDo) {
  mt::Runtime runtime({.devices = 4});
  const auto mesh = runtime.make_mesh({{"fsdp", 4}});
  mt::Gpt model = make_gpt();
  mt::shard(*model, mesh, {mt::PathRules{{"", P()}}, mt::FsdpRule("fsdp", {.min_size = 64})});
  try {
    mt::Zero<torch::optim::AdamW> optimizer(model->parameters(), {.axis = "fsdp", .stage = 1},
                                            torch::optim::AdamWOptions(3e-3));
    FAIL();
  } catch (const mt::Error& error) {
    EXPECT_NE(std::string(error.what()).find("or use stage 3, which keeps them so"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
