// SPDX-License-Identifier: Apache-2.0
//
// remat on a mesh: the program without it is the expectation, to the bit and in the same layouts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <meshtorch/tensor/module.h>
#include <meshtorch/tensor/runtime.h>
#include <meshtorch/tensor/scope.h>
#include <meshtorch/tensor/sharding.h>
#include <meshtorch/tensor/testing.h>
#include <meshtorch/train/microbatch.h>
#include <meshtorch/train/remat.h>
#include <meshtorch/train/zero.h>

namespace meshtorch {
namespace {

namespace nn = torch::nn;

constexpr std::int64_t kWidth = 16, kHeads = 4, kClasses = 5;

// Attention and an MLP, each normed before and dropped out after.
class BlockImpl : public nn::Module {
 public:
  BlockImpl() {
    norm1_ = register_module("norm1", nn::LayerNorm(nn::LayerNormOptions({kWidth})));
    norm2_ = register_module("norm2", nn::LayerNorm(nn::LayerNormOptions({kWidth})));
    q_ = register_module("q", nn::Linear(kWidth, kWidth));
    k_ = register_module("k", nn::Linear(kWidth, kWidth));
    v_ = register_module("v", nn::Linear(kWidth, kWidth));
    out_ = register_module("out", nn::Linear(kWidth, kWidth));
    up_ = register_module("up", nn::Linear(kWidth, 4 * kWidth));
    down_ = register_module("down", nn::Linear(4 * kWidth, kWidth));
    dropout_ = register_module("dropout", nn::Dropout(0.2));
  }

  at::Tensor forward(at::Tensor x) {
    const named_scope scope("block");
    x = x + dropout_(attention(norm1_(x)));
    return x + dropout_(down_(torch::gelu(up_(norm2_(x)), "tanh")));
  }

 private:
  at::Tensor attention(const at::Tensor& x) {
    const auto by_head = [&](const at::Tensor& y) {
      return y.view({x.size(0), x.size(1), kHeads, kWidth / kHeads}).transpose(1, 2);
    };
    const auto y = at::scaled_dot_product_attention(by_head(q_(x)), by_head(k_(x)), by_head(v_(x)));
    return out_(y.transpose(1, 2).reshape(x.sizes()));
  }

  nn::LayerNorm norm1_{nullptr}, norm2_{nullptr};
  nn::Linear q_{nullptr}, k_{nullptr}, v_{nullptr}, out_{nullptr}, up_{nullptr}, down_{nullptr};
  nn::Dropout dropout_{nullptr};
};
TORCH_MODULE(Block);

class ModelImpl : public nn::Module {
 public:
  explicit ModelImpl(bool with_remat) : remat_(with_remat) {
    for (auto* block : {&first_, &second_}) {
      register_module(block == &first_ ? "first" : "second", *block);
    }
    head_ = register_module("head", nn::Linear(kWidth, kClasses));
  }

  at::Tensor loss(const at::Tensor& inputs, const at::Tensor& targets) {
    at::Tensor x = inputs;
    for (Block& block : {std::ref(first_), std::ref(second_)}) {
      x = remat_ ? remat(block, x) : block(x);
    }
    return nn::functional::cross_entropy(head_(x.mean(1)), targets);
  }

 private:
  bool remat_;
  Block first_, second_;
  nn::Linear head_{nullptr};
};
TORCH_MODULE(Model);

class RematOnMesh : public testing::Test {
 protected:
  Model make(bool with_remat) {
    runtime.manual_seed(5);
    Model model(with_remat);
    const auto rules = PathRules(
        {{R"((q|k|v|up)\.(weight|bias))", P("tp")}, {R"((out|down)\.weight)", P(whole, "tp")}});
    shard(*model, mesh, PathRules(rules).otherwise(Unmatched::replicate));
    runtime.ledger().clear();
    return model;
  }

  std::vector<Microbatch> batch(std::int64_t count) {
    torch::manual_seed(9);
    const Batch whole_batch{torch::randn({8, 6, kWidth}),
                            torch::randint(kClasses, {8}, torch::kLong)};
    return microbatches(whole_batch, count, {mesh, P("dp")});
  }

  static void expect_same(const Model& got, const Model& expected) {
    const auto parameters = got->named_parameters();
    for (const auto& item : expected->named_parameters()) {
      const auto& mine = parameters[item.key()];
      EXPECT_TRUE(torch::equal(full(mine), full(item.value()))) << item.key();
      ASSERT_EQ(mine.grad().defined(), item.value().grad().defined()) << item.key();
      if (!mine.grad().defined()) continue;
      EXPECT_EQ(sharding_of(mine.grad()), sharding_of(item.value().grad())) << item.key();
      EXPECT_TRUE(torch::equal(full(mine.grad()), full(item.value().grad()))) << item.key();
    }
  }

  Runtime runtime{{.devices = 8}};
  Mesh mesh = runtime.make_mesh({{"dp", 4}, {"tp", 2}});
};

TEST_F(RematOnMesh, TransformerWithDropoutOverMicrobatches) {
  std::vector<double> losses[2];
  std::vector<Model> models;
  std::uint64_t draws[2];
  for (const bool with : {false, true}) {
    models.push_back(make(with));
    for (const auto& micro : batch(2)) {
      const auto loss = models.back()->loss(micro.inputs, micro.targets) * micro.weight();
      loss.backward();
      losses[with].push_back(loss.item<double>());
    }
    draws[with] = runtime.random().draws;
  }
  EXPECT_EQ(losses[1], losses[0]);
  EXPECT_EQ(draws[1], draws[0]);
  expect_same(models[1], models[0]);
  EXPECT_TRUE(runtime.fallbacks().empty());
}

TEST_F(RematOnMesh, TrainsWithZero) {
  std::vector<Model> models;
  for (const bool with : {false, true}) {
    models.push_back(make(with));
    Zero<torch::optim::AdamW> optimizer(models.back()->parameters(), {.axis = "dp"},
                                        torch::optim::AdamWOptions(1e-2));
    for (int step = 0; step < 3; ++step) {
      for (const auto& micro : batch(2)) {
        (models.back()->loss(micro.inputs, micro.targets) * micro.weight()).backward();
      }
      optimizer.step();
      optimizer.zero_grad();
    }
  }
  expect_same(models[1], models[0]);
}

// Two blocks, each with its two all-reduces over tp forward once more; backward as without.
TEST_F(RematOnMesh, TheSecondRunIsInTheLedger) {
  std::map<std::string, int> scopes[2];
  for (const bool with : {false, true}) {
    Model model = make(with);
    const auto micro = batch(1).at(0);
    runtime.ledger().clear();
    at::Tensor loss;
    {
      const named_scope scope("step");
      loss = model->loss(micro.inputs, micro.targets);
    }
    loss.backward();
    for (const auto& entry : runtime.ledger().entries()) ++scopes[with][entry.scope];
  }
  EXPECT_EQ(scopes[0].at("step/block"), 4) << runtime.ledger().to_string();
  auto expected = scopes[0];
  expected["step/remat/block"] = 4;
  EXPECT_EQ(scopes[1], expected) << runtime.ledger().to_string();
}

TEST_F(RematOnMesh, ScopeAndModeOfForward) {
  std::vector<std::string> paths;
  std::vector<Mode> modes;
  const auto fn = [&](const at::Tensor& x) {
    paths.push_back(named_scope::path());
    modes.push_back(runtime.mode());
    return x.exp();
  };
  const auto x = device_put(torch::randn({8}), {mesh, P("dp")}).set_requires_grad(true);
  const auto forward = [&] {
    const named_scope scope("forward");
    const mode_scope strict(Mode::strict);
    return remat(fn, x).sum();
  };
  const auto backward = [](const at::Tensor& loss) {
    const named_scope scope("backward");
    loss.backward();
  };
  forward().backward();
  const named_scope step("step");
  forward().backward();
  backward(forward());
  EXPECT_THAT(paths,
              testing::ElementsAre("forward", "forward/remat", "step/forward", "step/forward/remat",
                                   "step/forward", "step/backward/step/forward/remat"));
  for (const Mode mode : modes) EXPECT_EQ(mode, Mode::strict);
  EXPECT_EQ(runtime.mode(), Mode::automatic);
  EXPECT_EQ(named_scope::path(), "step");
}

TEST_F(RematOnMesh, KeepsNoActivation) {
  const auto w = device_put(torch::randn({8, 8}), {mesh, P(whole, "tp")}).set_requires_grad(true);
  const auto x = device_put(torch::randn({16, 8}), {mesh, P("dp")});
  for (const bool with : {true, false}) {
    std::vector<c10::weak_intrusive_ptr<at::TensorImpl>> inner;
    const auto fn = [&](const at::Tensor& in) {
      const auto h = in.matmul(w).tanh();
      inner.emplace_back(addressable_shards(h).at(0).data.getIntrusivePtr());
      return h.exp();
    };
    const auto y = with ? remat(fn, x) : fn(x);
    EXPECT_EQ(inner.at(0).expired(), with);
    y.sum().backward();
    for (const auto& pointer : inner) EXPECT_TRUE(pointer.expired());
  }
}

TEST_F(RematOnMesh, PlainAndShardedDrawsTogether) {
  at::Tensor gradients[2], after[2];
  for (const bool with : {false, true}) {
    runtime.manual_seed(3);
    const auto x = device_put(torch::ones({8, 4}), {mesh, P("dp")}).set_requires_grad(true);
    const auto fn = [](const at::Tensor& in) {
      return (torch::dropout(in.exp(), 0.5, true) * torch::rand({4})).sin();
    };
    const auto y = with ? remat(fn, x) : fn(x);
    y.sum().backward();
    gradients[with] = full(x.grad());
    after[with] = torch::cat({full(torch::rand_like(x.detach())), torch::rand({8, 4})});
  }
  EXPECT_TRUE(torch::equal(gradients[1], gradients[0]));
  EXPECT_TRUE(torch::equal(after[1], after[0]));
}

}  // namespace
}  // namespace meshtorch
