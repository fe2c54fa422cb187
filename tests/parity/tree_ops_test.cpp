// SPDX-License-Identifier: Apache-2.0
//
// Trees as values: leaves, paths, maps, structs and modules.

#include <meshtorch/base/testing.h>
#include <meshtorch/tensor/tree.h>

#include "compare.h"

namespace meshtorch {
namespace {

using torch::Tensor;

struct Block {
  Tensor up, down;
  std::optional<Tensor> bias;
};
struct Model {
  torch::nn::Linear embed{nullptr};
  std::vector<Block> layers;
  std::map<std::string, Tensor> heads;
  std::unordered_map<int, std::pair<Tensor, std::string>> extra;
  std::variant<double, Tensor> scale;
  std::unique_ptr<Block> last;
  std::string name;
  Tensor missing;
};

Model make_model() {
  torch::manual_seed(3);
  Model model;
  model.embed = torch::nn::Linear(2, 3);
  model.layers = {{torch::randn({3, 4}), torch::randn({4, 3}), torch::randn({3})},
                  {torch::randn({3, 4}), torch::randn({4, 3}), std::nullopt}};
  model.heads = {{"lm", torch::randn({3, 5})}, {"aux.x", torch::randn({3})}};
  model.extra[7] = {torch::randn({2}), "seven"};
  model.extra[-2] = {torch::randn({1}), "minus two"};
  model.scale = torch::randn({});
  model.last = std::make_unique<Block>(Block{torch::randn({1}), torch::randn({2}), {}});
  model.name = "mine";
  return model;
}

const std::vector<std::string> kPaths = {
    "embed.weight", "embed.bias",    "layers.0.up", "layers.0.down", "layers.0.bias",
    "layers.1.up",  "layers.1.down", "heads.aux.x", "heads.lm",      "extra.-2.0",
    "extra.7.0",    "scale",         "last.up",     "last.down"};

TEST(TreeOps, LeavesHaveDottedPathsInAFixedOrder) {
  const Model model = make_model();
  std::vector<std::string> paths;
  for (const auto& leaf : tree_leaves_with_path(model)) paths.push_back(leaf.path);
  EXPECT_EQ(paths, kPaths);
  const auto leaves = tree_leaves(model);
  ASSERT_EQ(leaves.size(), kPaths.size());
  EXPECT_TRUE(leaves[0].is_same(model.embed->weight));
  EXPECT_TRUE(leaves[3].is_same(model.layers[0].down));
  EXPECT_TRUE(leaves[10].is_same(model.extra.at(7).first));
}

TEST(TreeOps, MapMakesATreeOfTheSameTypeAndLeavesTheOldOneAlone) {
  const Model model = make_model();
  std::vector<Tensor> before;
  for (const auto& leaf : tree_leaves(model)) before.push_back(leaf.detach().clone());
  const Model twice = tree_map([](const Tensor& x) { return 2 * x; }, model);
  const auto old = tree_leaves(model), made = tree_leaves(twice);
  ASSERT_EQ(made.size(), before.size());
  for (std::size_t i = 0; i < made.size(); ++i) {
    EXPECT_TRUE(torch::equal(old[i], before[i])) << kPaths[i];
    EXPECT_TRUE(torch::equal(made[i], before[i] * 2)) << kPaths[i];
  }
  EXPECT_EQ(twice.name, "mine");
  EXPECT_EQ(twice.extra.at(7).second, "seven");
  EXPECT_EQ(twice.scale.index(), 1u);
  EXPECT_FALSE(twice.missing.defined());
  EXPECT_NE(twice.embed.ptr(), model.embed.ptr());
  EXPECT_TRUE(twice.embed->weight.is_leaf() && twice.embed->weight.requires_grad());
  const Tensor x = torch::randn({4, 2});
  EXPECT_TRUE(torch::allclose(model.embed.ptr()->forward(x) * 2, twice.embed.ptr()->forward(x)));
}

TEST(TreeOps, MapOverSeveralTreesTakesTensorsByPosition) {
  const Model a = make_model();
  const Model b = tree_map([](const Tensor& x) { return x + 1; }, a);
  std::vector<std::string> paths;
  const Model c = tree_map(
      [&](const std::string& path, const Tensor& x, const Tensor& y) {
        paths.push_back(path);
        return y - x;
      },
      a, b);
  EXPECT_EQ(paths, kPaths);
  for (const Tensor& leaf : tree_leaves(c))
    EXPECT_TRUE(torch::allclose(leaf, torch::ones_like(leaf)));
}

TEST(TreeOps, UnflattenIsTheInverseOfLeaves) {
  const Model model = make_model();
  std::vector<Tensor> leaves;
  for (std::size_t i = 0; i < kPaths.size(); ++i) leaves.push_back(torch::full({1}, double(i)));
  const Model made = tree_unflatten(model, leaves);
  const auto back = tree_leaves(made);
  for (std::size_t i = 0; i < kPaths.size(); ++i) EXPECT_EQ(back[i].item<double>(), double(i));
  EXPECT_TRUE(back[2].is_same(leaves[2]));  // plain leaves are the tensors given
}

TEST(TreeOps, DifferentStructuresAreAnErrorWithThePath) {
  const Model model = make_model();
  auto leaves = tree_leaves(model);
  leaves.resize(3);
  EXPECT_EQ(
      message([&] { tree_unflatten(model, leaves); }),
      "[tree_unflatten] layers.0.down: got 3 leaves for a tree that has 14; give one tensor for "
      "each of tree_leaves(like), in that order");
  leaves.resize(15, torch::ones({}));
  EXPECT_EQ(message([&] { tree_unflatten(model, leaves); }),
            "[tree_unflatten] got 15 leaves for a tree that has 14; give one tensor for each of "
            "tree_leaves(like), in that order");
  Model other = make_model();
  other.layers[0].bias.reset();
  const auto first = [](const Tensor& x, const Tensor&) { return x; };
  EXPECT_EQ(message([&] { tree_map(first, model, other); }),
            "[tree_map] layers.0.bias: the trees differ in structure: tree 1 of the rest has "
            "layers.1.up here; give trees with the same paths");
  other.layers.resize(1);
  EXPECT_EQ(
      message([&] { tree_map(first, std::vector<Tensor>{leaves[0]}, std::vector<Tensor>{}); }),
      "[tree_map] 0: the trees differ in structure: tree 1 of the rest has no more leaf here; "
      "give trees with the same paths");
}

TEST(TreeOps, RestMayBeUndefinedWhereTheTreeIsNot) {
  const std::vector<Tensor> tree{torch::ones({2}), torch::ones({3})};
  const std::map<int, Tensor> rest{{0, torch::ones({2})}, {1, Tensor()}};
  const auto made = tree_map(
      [](const Tensor& x, const Tensor& y) { return y.defined() ? x + y : x; }, tree, rest);
  EXPECT_EQ(made[0].sum().item<double>(), 4);
  EXPECT_TRUE(made[1].is_same(tree[1]));
}

// Two distinct tensors, one of them under two paths.
struct Tied {
  Tensor a, b;
  std::vector<Tensor> more;
};

TEST(TreeOps, TiedTensorsStayOneTensor) {
  const Tensor shared = torch::ones({2});
  Tied tied{shared, torch::ones({2}), {shared}};
  int calls = 0;
  const Tied made = tree_map([&](const Tensor& x) { return ++calls, x + 1; }, tied);
  EXPECT_EQ(calls, 2);
  EXPECT_TRUE(made.a.is_same(made.more[0]));
  EXPECT_FALSE(made.a.is_same(made.b));
  // Not where the other tree has two tensors there.
  const Tied untied = {torch::ones({2}), torch::ones({2}), {torch::full({2}, 5.0)}};
  const Tied sum = tree_map([](const Tensor& x, const Tensor& y) { return x + y; }, tied, untied);
  EXPECT_EQ(sum.a[0].item<double>(), 2);
  EXPECT_EQ(sum.more[0][0].item<double>(), 6);
}

struct Node {
  Tensor weight;
  std::shared_ptr<Node> next;
};

TEST(TreeOps, SharedNodesStayShared) {
  auto node = std::make_shared<Node>(Node{torch::ones({2}), nullptr});
  const std::vector<std::shared_ptr<Node>> pair{node, node};
  EXPECT_EQ(tree_leaves(pair).size(), 2u);
  const auto made = tree_map([](const Tensor& x) { return x * 3; }, pair);
  EXPECT_EQ(made[0], made[1]);
  EXPECT_NE(made[0], node);
  EXPECT_EQ(made[0]->weight[0].item<double>(), 3);
  EXPECT_EQ(
      message([&] {
        tree_unflatten(pair, {torch::ones({2}), torch::ones({2})});
      }),
      "[tree_unflatten] 1.weight: is in a node that several pointers hold, but was given another "
      "value than there; give tied leaves one tensor");
}

TEST(TreeOps, CyclesAreNotFollowedTwice) {
  auto first = std::make_shared<Node>(Node{torch::ones({2}), nullptr});
  first->next = std::make_shared<Node>(Node{torch::zeros({2}), first});
  const auto leaves = tree_leaves_with_path(first);
  ASSERT_EQ(leaves.size(), 2u);
  EXPECT_EQ(leaves[1].path, "next.weight");
  const auto made = tree_map([](const Tensor& x) { return x + 4; }, first);
  EXPECT_EQ(made->next->next, made);
  EXPECT_EQ(made->weight[0].item<double>(), 5);
  EXPECT_EQ(made->next->weight[0].item<double>(), 4);
  first->next.reset();
  made->next.reset();
}

struct TiedNetImpl : torch::nn::Cloneable<TiedNetImpl> {
  TiedNetImpl() { reset(); }
  void reset() override {
    tokens = register_module("tokens", torch::nn::Embedding(5, 3));
    register_module("head", tokens);
    norm = register_module("norm", torch::nn::BatchNorm1d(3));
  }
  torch::nn::Embedding tokens{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
};
TORCH_MODULE(TiedNet);

struct Held {
  Tensor outside;
  TiedNet net;
  std::shared_ptr<torch::nn::BatchNorm1dImpl> part;
  torch::nn::AnyModule any;
};

TEST(TreeOps, TiesWithinAndOutsideOfModulesAreKept) {
  Held held;
  held.outside = held.net->tokens->weight;
  held.part = held.net->norm.ptr();
  held.any = torch::nn::AnyModule(torch::nn::Linear(2, 2));
  const Tensor state = at::detail::getDefaultCPUGenerator().get_state();
  const Held made = tree_map([](const Tensor& x) { return x + 1; }, held);
  EXPECT_TRUE(torch::equal(state, at::detail::getDefaultCPUGenerator().get_state()));
  EXPECT_TRUE(made.outside.is_same(made.net->tokens->weight));
  EXPECT_TRUE(made.net->named_parameters()["head.weight"].is_same(made.net->tokens->weight));
  EXPECT_EQ(made.part, made.net->norm.ptr());
  EXPECT_TRUE(torch::equal(made.outside, held.outside + 1));
  EXPECT_EQ(made.net->norm->num_batches_tracked.item<std::int64_t>(), 1);
  EXPECT_EQ(made.net->norm->num_batches_tracked.scalar_type(), torch::kLong);
  EXPECT_TRUE(torch::equal(made.any.get<torch::nn::Linear>()->weight,
                           held.any.get<torch::nn::Linear>()->weight + 1));
}

TEST(TreeOps, AFrozenParameterStaysFrozen) {
  torch::nn::Linear linear(2, 2);
  linear->bias.requires_grad_(false);
  const auto made = tree_map([](const Tensor& x) { return x.to(torch::kDouble); }, linear);
  EXPECT_TRUE(made->weight.requires_grad());
  EXPECT_FALSE(made->bias.requires_grad());
  EXPECT_EQ(made->weight.scalar_type(), torch::kDouble);
}

// A tie between a module and its child, which libtorch's clone() does not make.
struct CrossTieImpl : torch::nn::Cloneable<CrossTieImpl> {
  CrossTieImpl() { reset(); }
  void reset() override {
    tokens = register_module("tokens", torch::nn::Embedding(5, 3));
    head = register_parameter("head", tokens->weight);
  }
  torch::nn::Embedding tokens{nullptr};
  Tensor head;
};
TORCH_MODULE(CrossTie);

struct PlainModuleImpl : torch::nn::Module {
  PlainModuleImpl() { register_parameter("w", torch::ones({2})); }
};
TORCH_MODULE(PlainModule);

TEST(TreeOps, AModuleThatCannotBeMadeAnewIsAnError) {
  const auto same = [](const Tensor& x) { return x; };
  const std::vector<torch::nn::Linear> linears{torch::nn::Linear(2, 2)};
  EXPECT_EQ(message([&] {
              tree_unflatten(linears, {torch::ones({2, 2}), Tensor()});
            }),
            "[tree_unflatten] 0.bias: an undefined tensor for a module's");
  const std::string plain = message([&] { tree_map(same, std::vector<PlainModule>(1)); });
  EXPECT_EQ(plain.substr(0, 21), "[tree_map] 0: module ") << plain;
  EXPECT_NE(plain.find("torch::nn::Cloneable"), std::string::npos) << plain;
  EXPECT_EQ(
      message([&] { tree_map(same, CrossTie()); }),
      "[tree_map] tokens.weight: is one tensor with head, but not in the clone(): libtorch's "
      "unties "
      "what modules share; override clone() so that it ties them, or register one module twice");
  const TiedNet net;
  auto leaves = tree_leaves(net);
  leaves[1] = torch::ones({5, 3});
  EXPECT_EQ(message([&] { tree_unflatten(net, leaves); }),
            "[tree_unflatten] head.weight: is one tensor with tokens.weight, but was given another "
            "value; give tied leaves one tensor");
}

TEST(TreeOps, ForEachWritesOnceAndAssignsEverywhere) {
  const Tensor shared = torch::ones({2});
  Tied tied{shared, torch::ones({2}), {shared}};
  tree_for_each(tied, [](const std::string&, Tensor& x) { x.mul_(2); });
  EXPECT_EQ(shared[0].item<double>(), 2);
  tree_for_each(tied, [](const std::string& path, Tensor& x) {
    if (path == "a") x = torch::zeros({3});
  });
  EXPECT_EQ(tied.a.numel(), 3);
  EXPECT_TRUE(tied.a.is_same(tied.more[0]));
  EXPECT_EQ(shared.numel(), 2);

  Held held;
  held.outside = held.net->tokens->weight;
  const Tensor handle = held.outside;
  tree_for_each(held, [](const std::string& path, Tensor& x) {
    if (path == "outside") x = torch::zeros({7, 3});
  });
  EXPECT_TRUE(handle.is_same(held.net->tokens->weight));
  EXPECT_EQ(held.net->tokens->weight.size(0), 7);
}

TEST(TreeOps, ParametersAreThoseThatRequireAGradientOnce) {
  Held held;
  held.outside = held.net->tokens->weight;
  EXPECT_EQ(tree_parameters(held).size(), 3u);  // tokens = head = outside, norm's two
}

}  // namespace
}  // namespace meshtorch
