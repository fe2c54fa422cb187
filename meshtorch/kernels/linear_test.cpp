// SPDX-License-Identifier: Apache-2.0
//
// Products with leading dims, against plain libtorch: values, gradients, gradients of gradients, and how
// much moves.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <meshtorch/base/error.h>
#include <meshtorch/tensor/module.h>
#include <meshtorch/tensor/runtime.h>
#include <meshtorch/tensor/sharding.h>

namespace meshtorch {
namespace {

class ShardedLinear : public testing::Test {
 protected:
  void SetUp() override { torch::manual_seed(9); }

  static void expect_close(const at::Tensor& got, const at::Tensor& expected,
                           const std::string& what, double tolerance = 1e-4) {
    ASSERT_EQ(got.sizes(), expected.sizes()) << what;
    EXPECT_TRUE(full(got.detach()).allclose(expected.detach(), tolerance, 1e-5)) << what;
  }

  std::string moved() { return runtime.ledger().to_string(); }
  std::int64_t collectives() {
    return static_cast<std::int64_t>(runtime.ledger().entries().size());
  }

  Runtime runtime{{.devices = 8, .warn_fallback = false}};
  Mesh mesh = runtime.make_mesh({{"dp", 4}, {"tp", 2}});
};

// A layer and what its forward and backward move, input and weight laid out so.
struct Layer {
  const char* name;
  PartitionSpec input, weight, bias;
  std::int64_t forward, backward;
};

TEST_F(ShardedLinear, LayersMoveNothingButTheirSums) {
  const std::vector<Layer> layers{
      {"batch", P("dp"), P(), P(), 0, 0},
      {"sequence", P(whole, "dp"), P(), P(), 0, 0},
      {"batch and sequence", P("dp", "tp"), P(), P(), 0, 0},
      {"column parallel", P("dp"), P("tp"), P("tp"), 0, 0},
      {"column parallel, sequence", P(whole, "dp"), P("tp"), P("tp"), 0, 0},
      {"row parallel", P("dp", whole, "tp"), P(whole, "tp"), P(), 1, 0},
      {"row parallel, sequence", P(whole, "dp", "tp"), P(whole, "tp"), P(), 1, 0},
      {"features", P(whole, whole, "dp"), P(whole, "dp"), P(), 1, 0},
  };
  // Even batches and sequences, and such that do not divide.
  const std::vector<std::vector<std::int64_t>> shapes{{8, 4, 12}, {6, 5, 12}, {3, 7, 12}};
  for (const auto& shape : shapes) {
    for (const bool biased : {true, false}) {
      for (const Layer& layer : layers) {
        const std::string what = text(layer.name, " ", at::IntArrayRef(shape), " bias ", biased);
        torch::nn::Linear dense(torch::nn::LinearOptions(12, 16).bias(biased));
        torch::nn::Linear sharded(torch::nn::LinearOptions(12, 16).bias(biased));
        {
          torch::NoGradGuard no_grad;
          sharded->weight.copy_(dense->weight);
          if (biased) sharded->bias.copy_(dense->bias);
        }
        shard(*sharded, mesh, PathRules({{"weight", layer.weight}, {"bias", layer.bias}}));
        const auto x = torch::randn(shape), weights = torch::randn({shape[0], shape[1], 16});
        const auto plain = x.clone().requires_grad_();
        (dense->forward(plain) * weights).sum().backward();

        const auto input = device_put(x, {mesh, layer.input}).detach().requires_grad_();
        runtime.ledger().clear();
        const auto y = sharded->forward(input);
        EXPECT_EQ(collectives(), 0) << what << moved();
        const auto reduced = y.exp();  // forces the sum
        EXPECT_EQ(collectives(), layer.forward) << what << moved();
        expect_close(reduced, dense->forward(x).exp(), what);

        sharded->zero_grad();
        input.mutable_grad() = at::Tensor();
        runtime.ledger().clear();
        sharded->forward(input).backward(weights);
        EXPECT_EQ(collectives(), layer.backward) << what << moved();
        expect_close(input.grad(), plain.grad(), what);
        expect_close(sharded->weight.grad(), dense->weight.grad(), what);
        if (biased) expect_close(sharded->bias.grad(), dense->bias.grad(), what);
      }
    }
  }
}

struct Factors {
  std::vector<std::int64_t> a, b;
  std::vector<PartitionSpec> a_layouts, b_layouts;
};

TEST_F(ShardedLinear, Products) {
  const std::vector<Factors> all{
      {{6, 4, 5},
       {5, 3},
       {P("dp"), P(whole, "tp"), P("dp", "tp"), P("dp", whole, "tp")},
       {P(), P("tp"), P(whole, "tp")}},
      {{6, 4, 5},
       {6, 5, 3},
       {P("dp"), P("dp", "tp"), P()},
       {P("dp"), P("dp", "tp"), P(whole, whole, "tp")}},
      {{2, 3, 4, 5}, {2, 3, 5, 4}, {P("dp", "tp"), P("tp", "dp")}, {P("dp", "tp"), P()}},
      {{2, 1, 4, 5}, {3, 5, 2}, {P("dp"), P(whole, whole, "tp")}, {P("tp"), P(whole, "dp")}},
      {{4, 5}, {3, 5, 2}, {P("tp"), P()}, {P("dp"), P(whole, "tp"), P(whole, whole, "dp")}},
      {{5}, {3, 5, 2}, {P("tp"), P()}, {P("dp"), P(whole, "tp")}},
      {{3, 4, 5}, {5}, {P("dp"), P(whole, whole, "tp")}, {P(), P("tp")}},
      {{4, 5}, {5}, {P("dp")}, {P("tp")}},
      {{5}, {5, 4}, {P("dp")}, {P(whole, "tp")}},
      {{5}, {5}, {P("dp")}, {P("tp")}},
      {{4, 5}, {5, 3}, {P("dp")}, {P(whole, "tp")}},
      {{0, 4, 5}, {5, 3}, {P("dp")}, {P(whole, "tp")}},
  };
  for (const Factors& factors : all) {
    const auto a = torch::randn(factors.a), b = torch::randn(factors.b);
    // Value, gradients, and gradients of the gradients' squares.
    const auto run = [](const at::Tensor& x, const at::Tensor& y) {
      const auto product = torch::matmul(x, y);
      const auto first = torch::autograd::grad({product.square().sum()}, {x, y}, {}, true, true);
      const auto second =
          torch::autograd::grad({first[0].pow(3).sum() + first[1].square().sum()}, {x, y});
      return std::vector{product, first[0], first[1], second[0], second[1]};
    };
    const auto expected = run(a.clone().requires_grad_(), b.clone().requires_grad_());
    for (const PartitionSpec& p : factors.a_layouts) {
      for (const PartitionSpec& q : factors.b_layouts) {
        const auto got = run(device_put(a, {mesh, p}).detach().requires_grad_(),
                             device_put(b, {mesh, q}).detach().requires_grad_());
        for (std::size_t i = 0; i < got.size(); ++i)
          expect_close(got[i], expected[i],
                       text("value ", i, " of ", a.sizes(), p, " by ", b.sizes(), q), 1e-3);
      }
    }
  }
}

TEST_F(ShardedLinear, AMeshOfOneDevice) {
  const Mesh one = runtime.make_mesh({{"dp", 1}});
  torch::nn::Linear dense(12, 16), sharded(12, 16);
  {
    torch::NoGradGuard no_grad;
    sharded->weight.copy_(dense->weight);
    sharded->bias.copy_(dense->bias);
  }
  shard(*sharded, one, PathRules({{".*", P("dp")}}));
  const auto x = torch::randn({6, 5, 12});
  dense->forward(x).square().sum().backward();
  sharded->forward(device_put(x, {one, P("dp")})).square().sum().backward();
  expect_close(sharded->weight.grad(), dense->weight.grad(), "weight");
  expect_close(sharded->bias.grad(), dense->bias.grad(), "bias");
}

TEST_F(ShardedLinear, UnfusedAttentionIsLocal) {
  const auto q = torch::randn({8, 2, 5, 4}), k = torch::randn({8, 2, 5, 4});
  const auto put = [&](const at::Tensor& x) {
    return device_put(x, {mesh, P("dp", "tp")}).detach().requires_grad_();
  };
  const auto a = put(q), b = put(k);
  runtime.ledger().clear();
  const auto y = torch::matmul(torch::softmax(torch::matmul(a, b.transpose(-2, -1)), -1), b);
  y.backward(put(torch::ones({8, 2, 5, 4})).detach());
  EXPECT_EQ(collectives(), 0) << moved();
  expect_close(y, torch::matmul(torch::softmax(torch::matmul(q, k.transpose(-2, -1)), -1), k), "y");
}

// pytorch#161578: the major dim is cut to single rows, so the merged dim is cut over both axes.
TEST_F(ShardedLinear, AFlattenOfTwoShardedDimsIsLocal) {
  const auto dense = torch::randn({4, 6, 3});
  const auto x = device_put(dense, {mesh, P("dp", "tp")});
  runtime.ledger().clear();
  const auto y = x.flatten(0, 1);
  EXPECT_EQ(collectives(), 0) << moved();
  EXPECT_EQ(sharding_of(y).spec, P(axes("dp", "tp")));
  expect_close(y, dense.flatten(0, 1), "flatten");
}

TEST_F(ShardedLinear, AComplexProductHasConjugateGradients) {
  const auto a = torch::randn({3, 4, 5}, torch::kComplexDouble),
             b = torch::randn({5, 2}, torch::kComplexDouble);
  const auto gradients = [](const at::Tensor& x, const at::Tensor& y) {
    return torch::autograd::grad({torch::matmul(x, y).abs().square().sum()}, {x, y});
  };
  const auto expected = gradients(a.clone().requires_grad_(), b.clone().requires_grad_());
  const auto got = gradients(device_put(a, {mesh, P("dp")}).detach().requires_grad_(),
                             device_put(b, {mesh, P(whole, "tp")}).detach().requires_grad_());
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(full(got[i]).allclose(expected[i])) << i;
}

TEST_F(ShardedLinear, WithoutAutograd) {
  c10::InferenceMode inference;
  const auto x = torch::randn({6, 5, 12}), weight = torch::randn({16, 12}),
             bias = torch::randn({16});
  const auto input = device_put(x, {mesh, P("dp", "tp")});
  runtime.ledger().clear();
  const auto y =
      torch::linear(input, device_put(weight, {mesh, P()}), device_put(bias, {mesh, P()}));
  EXPECT_EQ(collectives(), 0) << moved();
  expect_close(y, torch::linear(x, weight, bias), "linear");
}

TEST_F(ShardedLinear, ABadCallIsRefusedInLibtorchsWords) {
  const auto x = device_put(torch::randn({2, 3, 4}), {mesh, P("dp")});
  EXPECT_THROW(torch::matmul(x, torch::randn({5, 2})), c10::Error);
  EXPECT_THROW(torch::matmul(x, torch::randn({})), c10::Error);
  EXPECT_THROW(torch::linear(x, torch::randn({2, 5})), c10::Error);
}

}  // namespace
}  // namespace meshtorch
