// SPDX-License-Identifier: Apache-2.0
//
// ZeRO on what real models have: tied, frozen and unused parameters, buffers, hooks, groups, schedulers,
// gradients that are not finite, checkpoints. Each in every stage, beside plain libtorch.
#include "compare.h"

#include <cmath>
#include <filesystem>

#include <gmock/gmock.h>

#include <meshtorch/train/norm.h>
#include <meshtorch/train/zero_leaf.h>

namespace mt = meshtorch;
namespace nn = torch::nn;
namespace optim = torch::optim;
using mt::P;
using mt::Reduce;
using testing::HasSubstr;

namespace {

// A trunk whose second layer is used twice, two heads of which a microbatch uses one, a tied output, a
// frozen table and a batch norm.
struct NetImpl : nn::Module {
  NetImpl() {
    table = register_module("table", nn::Embedding(8, 8));
    table->weight.set_requires_grad(false);
    in = register_module("in", nn::Linear(nn::LinearOptions(8, 16).bias(false)));  // a bias would
    // be taken away again, and Adam would train on its rounding.
    norm = register_module("norm", nn::BatchNorm1d(16));
    twice = register_module("twice", nn::Linear(16, 16));
    heads = register_module("heads", nn::ModuleList(nn::Linear(16, 8), nn::Linear(16, 8)));
    scale = register_parameter("scale", torch::full({3}, 0.5));
  }
  torch::Tensor forward(const torch::Tensor& tokens, int head) {
    auto x = torch::relu(norm(in(table(tokens))));
    x = torch::tanh(twice(torch::tanh(twice(x))));
    x = heads[static_cast<std::size_t>(head)]->as<nn::Linear>()->forward(x);
    return torch::matmul(x, in->weight.t()) * scale.sum();  // tied: used at both ends
  }
  nn::Embedding table{nullptr};
  nn::Linear in{nullptr}, twice{nullptr};
  nn::BatchNorm1d norm{nullptr};
  nn::ModuleList heads{nullptr};
  torch::Tensor scale;
};
TORCH_MODULE(Net);

Net make_net() {
  torch::manual_seed(3);
  return Net();
}

torch::Tensor loss_of(Net& net, const torch::Tensor& tokens, int head) {
  return (net->forward(tokens, head) - 0.1).square().mean();
}

torch::Tensor tokens_of(int step, int micro) {
  torch::manual_seed(1000 + 10 * static_cast<std::uint64_t>(step) +
                     static_cast<std::uint64_t>(micro));
  return torch::randint(8, {16}, torch::kLong);
}

std::vector<optim::OptimizerParamGroup> groups_of(Net& net) {
  std::vector<at::Tensor> slow, fast;
  for (const auto& item : net->named_parameters())
    (item.key().rfind("heads", 0) == 0 ? fast : slow).push_back(item.value());
  std::vector<optim::OptimizerParamGroup> groups;
  groups.emplace_back(slow);
  groups.emplace_back(
      fast, std::make_unique<optim::AdamWOptions>(optim::AdamWOptions(5e-3).weight_decay(0.2)));
  return groups;
}

constexpr int kSteps = 8;
constexpr int kMicrobatches = 3;

// One program for both: `put` and `step` are all that differs.
template <class Optimizer, class Put>
std::vector<double> train(Net& net, Optimizer& optimizer, Put put) {
  optim::StepLR schedule(optimizer, 3, 0.5);
  std::vector<double> losses;
  for (int step = 0; step < kSteps; ++step) {
    double total = 0;
    for (int micro = 0; micro < kMicrobatches; ++micro) {
      // The second head is used in one microbatch of every other step only.
      auto loss =
          loss_of(net, put(tokens_of(step, micro)), step % 2 == 0 && micro == 1) / kMicrobatches;
      loss.backward();
      total += loss.template item<double>();
    }
    optimizer.step();
    schedule.step();
    optimizer.zero_grad();
    losses.push_back(total);
  }
  return losses;
}

class ZeroModels : public testing::TestWithParam<int> {
 protected:
  int stage() const { return GetParam(); }

  mt::Runtime runtime{{.devices = 8}};
  mt::Mesh mesh = runtime.make_mesh({{"dp", 4}, {"tp", 2}});

  Net sharded_net() {
    auto net = make_net();
    mt::shard(*net, mesh,
              mt::PathRules({{"^in", P("tp")}, {"twice.weight", P(mt::whole, "tp")}})
                  .otherwise(mt::Unmatched::replicate));
    return net;
  }
  torch::Tensor put(const torch::Tensor& tokens) const {
    return mt::device_put(tokens, {mesh, P("dp")});
  }
};

INSTANTIATE_TEST_SUITE_P(Stages, ZeroModels, testing::Values(0, 1, 2, 3),
                         [](const auto& info) { return "stage" + std::to_string(info.param); });

TEST_P(ZeroModels, TrainAsPlainLibtorch) {
  auto dense = make_net();
  optim::AdamW plain(groups_of(dense), optim::AdamWOptions(1e-2));
  const auto expected = train(dense, plain, [](const torch::Tensor& tokens) { return tokens; });

  auto net = sharded_net();
  mt::Zero<optim::AdamW> zero(groups_of(net), {.axis = "dp", .stage = stage()},
                              optim::AdamWOptions(1e-2));
  const auto got = train(net, zero, [this](const torch::Tensor& tokens) { return put(tokens); });
  for (int step = 0; step < kSteps; ++step)
    EXPECT_NEAR(got[step] / expected[step], 1, 2e-5) << "step " << step;
  for (const auto& item : dense->named_parameters())
    mt::expect_close(net->named_parameters()[item.key()], item.value(), item.key(), 1e-3, 1e-4);
  for (const auto& item : dense->named_buffers())
    mt::expect_close(net->named_buffers()[item.key()], item.value(), item.key(), 1e-4, 1e-5);
}

TEST_P(ZeroModels, TiedAndFrozenHaveOneStateAndNone) {
  auto net = sharded_net();
  const auto before = mt::full(net->table->weight).clone();
  mt::Zero<optim::AdamW> zero(net->parameters(), {.stage = stage()}, optim::AdamWOptions(1e-2));
  for (int step = 0; step < 2; ++step) {
    loss_of(net, put(tokens_of(step, 0)), 0).backward();
    EXPECT_FALSE(net->table->weight.grad().defined());
    zero.step();
    zero.zero_grad();
  }
  // in, norm, twice, one head, scale: the other head had no gradient, the table never has.
  EXPECT_EQ(net->parameters().size(), 11u);
  EXPECT_EQ(zero.state().size(), 8u);
  EXPECT_TRUE(torch::equal(mt::full(net->table->weight), before));
}

TEST_P(ZeroModels, UnfreezingLaterIsAnError) {
  auto net = sharded_net();
  mt::Zero<optim::SGD> zero(net->parameters(), {.stage = stage()}, optim::SGDOptions(0.1));
  net->table->weight.set_requires_grad(true);
  loss_of(net, put(tokens_of(0, 0)), 0).backward();
  EXPECT_THAT(mt::message_of([&] { zero.step(); }),
              HasSubstr("was frozen when Zero was made, and has a gradient now; make a Zero after "
                        "requires_grad_(true)"));
}

TEST_P(ZeroModels, BuffersAreEqualOnAllDevices) {
  auto net = sharded_net();
  mt::Zero<optim::SGD> zero(net->parameters(), {.stage = stage()}, optim::SGDOptions(0.1));
  for (int step = 0; step < 3; ++step) {
    loss_of(net, put(tokens_of(step, 0)), 0).backward();
    zero.step();
    zero.zero_grad();
  }
  for (const auto& item : net->named_buffers()) {
    const auto shards = mt::addressable_shards(item.value());
    for (const auto& shard : shards)
      EXPECT_TRUE(torch::equal(shard.data, shards[0].data)) << item.key();
  }
}

TEST_P(ZeroModels, HooksSeeTheGradient) {
  const auto clamp = [](const torch::Tensor& gradient) { return gradient.clamp(-1e-3, 1e-3); };
  auto dense = make_net();
  dense->twice->weight.register_hook(clamp);
  optim::SGD plain(dense->parameters(), optim::SGDOptions(1.0));
  auto net = sharded_net();
  mt::Zero<optim::SGD> zero(net->parameters(), {.stage = stage()}, optim::SGDOptions(1.0));
  net->twice->weight.register_hook(clamp);
  for (int step = 0; step < 3; ++step) {
    loss_of(dense, tokens_of(step, 0), 0).backward();
    plain.step();
    plain.zero_grad();
    loss_of(net, put(tokens_of(step, 0)), 0).backward();
    zero.step();
    zero.zero_grad();
  }
  mt::expect_close(net->twice->weight, dense->twice->weight, "hooked", 1e-4, 1e-5);
}

TEST_P(ZeroModels, AGradientThatIsNotFiniteIsSkippedAndReported) {
  auto net = sharded_net();
  mt::Zero<optim::AdamW> zero(net->parameters(), {.stage = stage(), .skip_nonfinite = true},
                              optim::AdamWOptions(1e-2));
  const auto step = [&](double factor) {
    (loss_of(net, put(tokens_of(0, 0)), 0) * factor).backward();
    zero.step();
    zero.zero_grad();
  };
  step(1);
  EXPECT_FALSE(zero.status().skipped);
  const auto before = mt::full(net->in->weight.detach()).clone();
  const auto norm = *zero.gradient_norm();
  EXPECT_TRUE(std::isfinite(norm));
  for (const double bad :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    step(bad);
    EXPECT_TRUE(zero.status().skipped);
    EXPECT_FALSE(std::isfinite(*zero.gradient_norm()));
    EXPECT_TRUE(torch::equal(mt::full(net->in->weight.detach()), before));
  }
  EXPECT_EQ(zero.status().skips, 2);
  for (const auto& [key, state] : zero.state())
    EXPECT_EQ(static_cast<const optim::AdamWParamState&>(*state).step(), 1);
  step(1);
  EXPECT_FALSE(zero.status().skipped);
  EXPECT_FALSE(torch::equal(mt::full(net->in->weight.detach()), before));
}

TEST_P(ZeroModels, WeightsSavedInOneStageGoOnInAnother) {
  const auto path = std::filesystem::temp_directory_path() / "zero_models_test.safetensors";
  auto dense = make_net();
  optim::SGD plain(dense->parameters(), optim::SGDOptions(0.1));
  auto net = sharded_net();
  {
    mt::Zero<optim::SGD> zero(net->parameters(), {.stage = stage()}, optim::SGDOptions(0.1));
    loss_of(net, put(tokens_of(0, 0)), 0).backward();
    zero.step();
    mt::save(*net, path.string());
  }
  loss_of(dense, tokens_of(0, 0), 0).backward();
  plain.step();
  plain.zero_grad();

  auto other = sharded_net();
  mt::Zero<optim::SGD> zero(other->parameters(), {.stage = 3 - stage()}, optim::SGDOptions(0.1));
  mt::load(*other, path.string());
  loss_of(other, put(tokens_of(1, 0)), 0).backward();
  zero.step();
  loss_of(dense, tokens_of(1, 0), 0).backward();
  plain.step();
  for (const auto& item : dense->named_parameters())
    mt::expect_close(other->named_parameters()[item.key()], item.value(), item.key(), 1e-4, 1e-5);
  if (runtime.process() == 0) std::filesystem::remove(path);
}

// cases.md 63, 35.
TEST_P(ZeroModels, NoParameterIsCopiedAndStateIsSharded) {
  nn::Sequential net(nn::Linear(16, 32), nn::Tanh(), nn::Linear(32, 16));
  mt::replicate(*net, mesh);
  mt::Zero<optim::AdamW> zero(net->parameters(), {.stage = stage()}, optim::AdamWOptions(1e-2));
  const auto addresses = [&] {
    std::vector<const void*> all;
    for (const auto& parameter : net->parameters())
      for (const auto& shard : mt::addressable_shards(parameter))
        all.push_back(shard.data.const_data_ptr());
    return all;
  };
  const auto before = addresses();
  for (int step = 0; step < 3; ++step) {
    net->forward(mt::device_put(torch::randn({8, 16}), {mesh, P("dp")})).square().mean().backward();
    zero.step();
    zero.zero_grad();
  }
  EXPECT_EQ(addresses(), before);
  const std::int64_t whole = (16 * 32 + 32 + 32 * 16 + 16) * 4;
  std::int64_t state = 0, kept = 0;
  for (const auto& parameter : net->parameters())
    kept += static_cast<std::int64_t>(mt::addressable_shards(parameter)[0].data.nbytes());
  for (const auto& [key, each] : zero.state()) {
    const auto& adam = static_cast<const optim::AdamWParamState&>(*each);
    for (const auto& moment : {adam.exp_avg(), adam.exp_avg_sq()})
      state += static_cast<std::int64_t>(mt::addressable_shards(moment)[0].data.nbytes());
  }
  EXPECT_EQ(state, 2 * whole / (stage() >= 1 ? 4 : 1));
  EXPECT_EQ(kept, whole / (stage() == 3 ? 4 : 1));
}

TEST_P(ZeroModels, AnotherZeroTakesOver) {
  auto dense = make_net();
  optim::SGD plain(dense->parameters(), optim::SGDOptions(0.1));
  auto net = sharded_net();
  auto first = std::make_unique<mt::Zero<optim::SGD>>(
      net->parameters(), mt::ZeroOptions{.stage = stage()}, optim::SGDOptions(0.1));
  const auto again = [&] {
    return std::make_unique<mt::Zero<optim::SGD>>(
        net->parameters(), mt::ZeroOptions{.stage = 3 - stage()}, optim::SGDOptions(0.1));
  };
  EXPECT_THAT(mt::message_of([&] { again(); }),
              HasSubstr("is in another Zero, which takes its gradients; destroy that one first"));
  first.reset();
  const auto second = again();
  for (int step = 0; step < 2; ++step) {
    loss_of(dense, tokens_of(step, 0), 0).backward();
    plain.step();
    plain.zero_grad();
    loss_of(net, put(tokens_of(step, 0)), 0).backward();
    second->step();
    second->zero_grad();
  }
  for (const auto& item : dense->named_parameters())
    mt::expect_close(net->named_parameters()[item.key()], item.value(), item.key(), 1e-4, 1e-5);
}

TEST_P(ZeroModels, AClosureSeesWhatTheProgramWrote) {
  auto dense = make_net();
  optim::SGD plain(dense->parameters(), optim::SGDOptions(0.1));
  auto net = sharded_net();
  mt::Zero<optim::SGD> zero(net->parameters(), {.stage = stage()}, optim::SGDOptions(0.1));
  const auto step = [](auto& optimizer, Net& model, const torch::Tensor& tokens) {
    optimizer.step([&] {
      optimizer.zero_grad();
      auto loss = loss_of(model, tokens, 0);
      loss.backward();
      return loss;
    });
    torch::NoGradGuard no_grad;
    for (auto& parameter : model->parameters()) parameter.mul_(0.5);
  };
  for (int i = 0; i < 3; ++i) {
    step(plain, dense, tokens_of(i, 0));
    step(zero, net, put(tokens_of(i, 0)));
  }
  for (const auto& item : dense->named_parameters())
    mt::expect_close(net->named_parameters()[item.key()], item.value(), item.key(), 1e-4, 1e-5);
}

// With momentum an optimizer goes on from a gradient of zero, not from none.
TEST_P(ZeroModels, GradientsAreSetToZeroOrToNone) {
  for (const bool set_to_none : {true, false}) {
    auto dense = make_net();
    optim::SGD plain(dense->parameters(), optim::SGDOptions(0.1).momentum(0.9));
    auto net = sharded_net();
    mt::Zero<optim::SGD> zero(net->parameters(), {.stage = stage()},
                              optim::SGDOptions(0.1).momentum(0.9));
    const auto run = [&](auto& optimizer, Net& model, const torch::Tensor& tokens) {
      loss_of(model, tokens, 0).backward();
      optimizer.step();
      optimizer.zero_grad(set_to_none);
      optimizer.step();
    };
    for (int i = 0; i < 2; ++i) {
      run(plain, dense, tokens_of(i, 0));
      run(zero, net, put(tokens_of(i, 0)));
    }
    for (const auto& item : dense->named_parameters())
      mt::expect_close(net->named_parameters()[item.key()], item.value(), item.key(), 1e-4, 1e-5);
  }
}

TEST_P(ZeroModels, AParameterThatBecameAnotherTensorIsAnError) {
  const std::string words =
      "holds another tensor than when Zero was made (set_data, module->to, device_get, another "
      "Zero)";
  auto net = sharded_net();
  mt::Zero<optim::SGD> zero(net->parameters(), {.stage = stage()}, optim::SGDOptions(0.1));
  mt::device_get(*net);
  EXPECT_THAT(mt::message_of([&] { zero.step(); }), HasSubstr(words));
  auto other = sharded_net();
  mt::Zero<optim::SGD> second(other->parameters(), {.stage = stage()}, optim::SGDOptions(0.1));
  other->to(torch::kDouble);
  EXPECT_THAT(mt::message_of([&] { second.step(); }), HasSubstr(words));
}

TEST_P(ZeroModels, AStepWithAClosureCannotBeSkipped) {
  auto net = sharded_net();
  mt::Zero<optim::LBFGS> zero(net->parameters(), {.stage = stage(), .skip_nonfinite = true},
                              optim::LBFGSOptions(0.1));
  EXPECT_THAT(mt::message_of([&] { zero.step([] { return at::Tensor(); }); }),
              HasSubstr("[Zero] step: with a closure no step can be skipped"));
}

class ZeroModes : public ZeroModels {};
INSTANTIATE_TEST_SUITE_P(Stages, ZeroModes, testing::Values(2, 3),
                         [](const auto& info) { return "stage" + std::to_string(info.param); });

// no_sync: what would be reduced in every backward waits for the first one outside.
TEST_P(ZeroModes, ReductionIsHeldBackByAScope) {
  nn::Sequential net(nn::Linear(16, 32), nn::Tanh(), nn::Linear(32, 16));
  mt::replicate(*net, mesh);
  mt::Zero<optim::SGD> zero(net->parameters(), {.stage = stage()}, optim::SGDOptions(0.1));
  const auto reductions = [&] {
    return runtime.ledger().count(
        [](const auto& entry) { return entry.op == "Zero::reduce_gradients"; });
  };
  const auto backward = [&] {
    net->forward(mt::device_put(torch::randn({8, 16}), {mesh, P("dp")})).square().mean().backward();
  };
  runtime.ledger().clear();
  {
    mt::reduce_scope held(zero, Reduce::once);
    for (int micro = 0; micro < 3; ++micro) backward();
    EXPECT_EQ(reductions(), 0);
    EXPECT_TRUE(net->parameters()[0].grad().defined());
  }
  backward();
  EXPECT_FALSE(net->parameters()[0].grad().defined());
  zero.step();
  EXPECT_EQ(reductions(), 1) << runtime.ledger().to_string();
}

TEST_P(ZeroModes, WritingThroughAViewOfStoredPartsIsRefused) {
  auto net = sharded_net();
  mt::Zero<optim::SGD> zero(net->parameters(), {.stage = 3}, optim::SGDOptions(0.1));
  torch::NoGradGuard no_grad;
  EXPECT_THAT(mt::message_of([&] { net->in->weight.t().zero_(); }),
              HasSubstr("writes through a view of a parameter that is stored in parts; write the "
                        "parameter itself"));
  net->in->weight.fill_(2.0);
  EXPECT_TRUE(torch::equal(mt::full(net->in->weight), torch::full({16, 8}, 2.0)));
  net->in->weight.mul_(2.0);
  EXPECT_EQ(mt::full(net->in->weight).sum().item<double>(), 4.0 * 16 * 8);
  EXPECT_EQ(mt::sharding_of(net->in->weight).spec.to_string(), "P((tp, dp))");
  EXPECT_EQ(mt::addressable_shards(net->in->weight)[0].data.numel(), 16);
}

class Norms : public testing::Test {
 protected:
  mt::Runtime runtime{{.devices = 8}};
};

// cases.md 19 and 22.
TEST_F(Norms, CountEachElementOnceOverLayoutsAndMeshes) {
  const auto a = runtime.make_mesh({{"dp", 4}, {"tp", 2}}), b = runtime.make_mesh({{"ep", 8}});
  torch::manual_seed(1);
  std::vector<at::Tensor> plain, placed;
  const std::vector<mt::NamedSharding> places{
      {a, P()},     {a, P("dp", "tp")},      {a, P("tp")},
      {b, P("ep")}, {b, P(mt::whole, "ep")}, {a, P().unreduced("dp")}};
  for (const auto& place : places) {
    plain.push_back(torch::zeros({9, 16}).requires_grad_());
    plain.back().mutable_grad() = torch::randn({9, 16});
    placed.push_back(mt::device_put(torch::zeros({9, 16}), {place.mesh, P()}).requires_grad_());
    placed.back().mutable_grad() = mt::device_put(plain.back().grad(), place);
  }
  plain.push_back(torch::zeros({3}).requires_grad_());
  plain.back().mutable_grad() = torch::randn({3});
  placed.push_back(plain.back().detach().clone().requires_grad_());
  placed.back().mutable_grad() = plain.back().grad().clone();
  const double expected = torch::nn::utils::clip_grad_norm_(plain, 2.0);
  const auto got = mt::clip_grad_norm_(placed, 2.0);
  EXPECT_NEAR(*got, expected, 1e-5 * expected);
  for (std::size_t i = 0; i < plain.size(); ++i)
    mt::expect_close(placed[i].grad(), plain[i].grad(), "gradient " + std::to_string(i));
  EXPECT_EQ(mt::message_of([&] { mt::clip_grad_norm_(placed, 0); }),
            "[clip_grad_norm_] max_norm: got 0, expected a positive number; give infinity to "
            "measure only");
}

}  // namespace
