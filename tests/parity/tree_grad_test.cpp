// SPDX-License-Identifier: Apache-2.0
//
// value_and_grad: gradients as trees, against formulas and backward().

#include <meshtorch/base/testing.h>
#include <meshtorch/tensor/tree.h>
#include <meshtorch/train/value_and_grad.h>

#include "compare.h"

namespace meshtorch {
namespace {

using torch::Tensor;

struct Layer {
  Tensor weight;
  std::optional<Tensor> bias;
};
struct Net {
  std::vector<Layer> layers;
  torch::nn::BatchNorm1d norm{nullptr};
  Tensor unused, indices;
  std::string name;
};

Net make_net() {
  torch::manual_seed(2);
  return {.layers = {{torch::randn({4, 3}), torch::randn({3})}, {torch::randn({3, 2}), {}}},
          .norm = torch::nn::BatchNorm1d(3),
          .unused = torch::randn({5}),
          .indices = torch::tensor({1, 0}),
          .name = "net"};
}

Tensor loss_of(Net& net, const Tensor& x, const Tensor& y) {
  Tensor h = torch::relu(x.matmul(net.layers[0].weight) + *net.layers[0].bias);
  h = net.norm(h).matmul(net.layers[1].weight).index_select(1, net.indices);
  return torch::mse_loss(h, y);
}

// By backward() on tensors that require gradients.
std::map<std::string, Tensor> reference(const Net& net, const Tensor& x, const Tensor& y) {
  Net own = tree_map([](const Tensor& t) { return t.detach().clone(); }, net);
  for (auto& layer : own.layers) {
    layer.weight.requires_grad_();
    if (layer.bias) layer.bias->requires_grad_();
  }
  loss_of(own, x, y).backward();
  return {{"layers.0.weight", own.layers[0].weight.grad()},
          {"layers.0.bias", own.layers[0].bias->grad()},
          {"layers.1.weight", own.layers[1].weight.grad()},
          {"norm.weight", own.norm->weight.grad()},
          {"norm.bias", own.norm->bias.grad()},
          {"norm.running_mean", torch::zeros({3})},
          {"norm.running_var", torch::zeros({3})},
          {"norm.num_batches_tracked", torch::zeros({}, torch::kLong)},
          {"unused", torch::zeros({5})}};
}

TEST(TreeGrad, GivesTheValueAndATreeOfGradients) {
  const Net net = make_net();
  const Tensor x = torch::randn({6, 4}), y = torch::randn({6, 2});
  const auto expected = reference(net, x, y);
  Net copy = tree_map([](const Tensor& t) { return t.detach().clone(); }, net);
  const double value = loss_of(copy, x, y).item<double>();

  torch::NoGradGuard outside;  // changes nothing
  auto [loss, gradients] = value_and_grad(loss_of)(net, x, y);
  EXPECT_DOUBLE_EQ(loss.item<double>(), value);
  EXPECT_FALSE(loss.requires_grad());
  static_assert(std::is_same_v<decltype(gradients), Net>);
  const auto leaves = tree_leaves_with_path(gradients);
  ASSERT_EQ(leaves.size(), expected.size());
  for (const auto& leaf : leaves) {
    expect_close(leaf.tensor, expected.at(leaf.path), leaf.path, 1e-6, 1e-7);
    EXPECT_FALSE(leaf.tensor.requires_grad()) << leaf.path;
  }
  EXPECT_FALSE(gradients.indices.defined());
  EXPECT_EQ(gradients.name, "net");
  for (const auto& leaf : tree_leaves(net)) EXPECT_FALSE(leaf.grad().defined());
  EXPECT_FALSE(net.layers[0].weight.requires_grad());
  EXPECT_EQ(net.norm->num_batches_tracked.item<std::int64_t>(), 1);  // of the module itself
}

TEST(TreeGrad, MoreResultsComeBackAsTheyAre) {
  const std::vector<Tensor> w{torch::tensor({1.0, 2.0})};
  auto fn = value_and_grad([](const std::vector<Tensor>& w, double factor) {
    const Tensor y = w[0] * factor;
    return std::tuple(y.square().sum(), y, std::string("text"));
  });
  const auto [out, gradients] = fn(w, 3.0);
  const auto& [value, y, words] = out;
  EXPECT_DOUBLE_EQ(value.item<double>(), 45);
  EXPECT_TRUE(torch::equal(y, torch::tensor({3.0, 6.0})));
  EXPECT_FALSE(y.requires_grad());
  EXPECT_EQ(words, "text");
  EXPECT_TRUE(torch::allclose(gradients[0], torch::tensor({18.0, 36.0})));
}

TEST(TreeGrad, ATiedTensorHasOneGradientTheSum) {
  const Tensor shared = torch::tensor({2.0});
  const std::map<std::string, Tensor> tree{
      {"a", shared}, {"b", shared}, {"c", torch::tensor({5.0})}};
  auto [value, gradients] = value_and_grad([](const std::map<std::string, Tensor>& t) {
    return (t.at("a") * t.at("a") * t.at("b") + t.at("c")).sum();
  })(tree);
  EXPECT_TRUE(gradients.at("a").is_same(gradients.at("b")));
  EXPECT_DOUBLE_EQ(gradients.at("a").item<double>(), 12);  // of x^3
  EXPECT_DOUBLE_EQ(gradients.at("c").item<double>(), 1);
}

TEST(TreeGrad, LeavesAreIndependentOfEachOtherAndOfWhatIsCaptured) {
  const Tensor a = torch::tensor({3.0}).requires_grad_();
  const Tensor b = a * a;  // of the graph of a
  auto [value, gradients] = value_and_grad([&](const std::pair<Tensor, Tensor>& t) {
    return (t.first * t.second * a).sum();
  })(std::pair(a, b));
  EXPECT_DOUBLE_EQ(value.item<double>(), 81);
  EXPECT_DOUBLE_EQ(gradients.first.item<double>(),
                   27);  // b a, not what goes through b and a as well
  EXPECT_DOUBLE_EQ(gradients.second.item<double>(), 9);
  EXPECT_FALSE(a.grad().defined());
}

TEST(TreeGrad, GraphOfGradientsReachesTheLeaves) {
  const Tensor x = torch::tensor({2.0}).requires_grad_();
  auto cube =
      value_and_grad([](const Tensor& t) { return t.pow(3).sum(); }, {.create_graph = true});
  auto [value, gradient] = cube(x);
  EXPECT_DOUBLE_EQ(gradient.item<double>(), 12);
  const auto second = torch::autograd::grad({gradient.sum()}, {x}, {}, true, true);
  EXPECT_DOUBLE_EQ(second[0].item<double>(), 12);  // 6 x
  EXPECT_DOUBLE_EQ(torch::autograd::grad({value}, {x})[0].item<double>(), 12);
  // As one function inside another.
  auto [slope, curvature] =
      value_and_grad([&](const Tensor& t) { return cube(t).second.sum(); })(torch::tensor({2.0}));
  EXPECT_DOUBLE_EQ(slope.item<double>(), 12);
  EXPECT_DOUBLE_EQ(curvature.item<double>(), 12);
}

TEST(TreeGrad, GraphOfGradientsInModules) {
  torch::nn::Linear linear(torch::nn::LinearOptions(1, 1).bias(false));
  torch::nn::init::constant_(linear->weight, 2.0);
  auto cube = value_and_grad([](torch::nn::Linear& m) { return m->weight.pow(3).sum(); },
                             {.create_graph = true});
  auto [value, gradient] = cube(linear);
  EXPECT_DOUBLE_EQ(gradient->weight.item<double>(), 12);
  gradient->weight.sum().backward();
  EXPECT_DOUBLE_EQ(linear->weight.grad().item<double>(), 12);  // 6 w
}

TEST(TreeGrad, AFrozenParameterHasZeros) {
  torch::nn::Linear linear(2, 1);
  linear->bias.requires_grad_(false);
  auto [value, gradient] = value_and_grad([](torch::nn::Linear& m, const Tensor& x) {
    return m(x).sum();
  })(linear, torch::ones({3, 2}));
  EXPECT_TRUE(torch::equal(gradient->weight, torch::full({1, 2}, 3.0)));
  EXPECT_TRUE(torch::equal(gradient->bias, torch::zeros({1})));
}

TEST(TreeGrad, AConstantHasZeros) {
  auto [value, gradients] = value_and_grad([](const std::vector<Tensor>&) {
    return torch::tensor(4.0);
  })(std::vector<Tensor>{torch::ones({2})});
  EXPECT_DOUBLE_EQ(value.item<double>(), 4);
  EXPECT_TRUE(torch::equal(gradients[0], torch::zeros({2})));
}

TEST(TreeGrad, AValueIsOneFloatingPointElement) {
  const Tensor x = torch::ones({2});
  EXPECT_EQ(
      message([&] { value_and_grad([](const Tensor& t) { return t * 2; })(x); }),
      "[value_and_grad] value: got a tensor of shape [2] and dtype Float, expected one floating "
      "point element; reduce it with sum() or mean()");
  EXPECT_EQ(message([&] { value_and_grad([](const Tensor&) { return Tensor(); })(x); }),
            "[value_and_grad] value: got an undefined tensor, expected one floating point element; "
            "reduce it with sum() or mean()");
  EXPECT_NE(message([&] {
              value_and_grad([](const Tensor& t) { return t.sum().to(torch::kLong); })(x);
            }).find("dtype Long"),
            std::string::npos);
}

// On meshes: the same numbers, and the layouts that backward() gives.
TEST(TreeGrad, ShardedLeavesHaveTheGradientsOfBackward) {
  const Tensor x = torch::randn({8, 4}), y = torch::randn({8, 2});
  const Net dense = make_net();
  const auto expected = reference(dense, x, y);
  for (const auto& axes : std::vector<std::vector<MeshAxis>>{
           {{"dp", 8}}, {{"dp", 4}, {"tp", 2}}, {{"dp", 2}, {"tp", 2}, {"fsdp", 2}}}) {
    SCOPED_TRACE(name_of(axes));
    Runtime runtime({.devices = 8});
    const Mesh mesh = runtime.make_mesh(axes);
    Net net = tree_map([](const Tensor& t) { return t.clone(); }, dense);
    const bool tp = mesh.find_axis("tp") >= 0;
    const P column = tp ? P(whole, "tp") : P();
    shard(net, mesh, PathRules{{"layers.0.weight", column}}.otherwise(Unmatched::replicate));
    const Tensor xs = device_put(x, {mesh, P("dp")}), ys = device_put(y, {mesh, P("dp")});
    auto [loss, gradients] = value_and_grad(loss_of)(net, xs, ys);
    EXPECT_TRUE(is_sharded(loss));
    for (const auto& leaf : tree_leaves_with_path(gradients)) {
      EXPECT_TRUE(is_sharded(leaf.tensor)) << leaf.path;
      expect_close(leaf.tensor, expected.at(leaf.path), leaf.path);
    }
    // backward() on the same leaves.
    net.layers[0].weight.requires_grad_();
    net.layers[0].bias->requires_grad_();
    loss_of(net, xs, ys).backward();
    EXPECT_EQ(sharding_of(gradients.layers[0].weight).spec,
              sharding_of(net.layers[0].weight.grad()).spec);
    EXPECT_EQ(sharding_of(*gradients.layers[0].bias).spec,
              sharding_of(net.layers[0].bias->grad()).spec);
    EXPECT_EQ(sharding_of(gradients.norm->weight).spec, sharding_of(net.norm->weight.grad()).spec);
  }
}

}  // namespace
}  // namespace meshtorch
