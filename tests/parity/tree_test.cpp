// SPDX-License-Identifier: Apache-2.0
//
// A model that is a struct of structs, with nothing written for it, trains as on one device.

#include <meshtorch/base/testing.h>
#include <meshtorch/tensor/tree.h>
#include <meshtorch/train/value_and_grad.h>

#include "compare.h"

namespace meshtorch {
namespace {

using torch::Tensor;

constexpr std::int64_t kVocabulary = 24, kWidth = 16, kHidden = 32, kClasses = 8, kBatch = 16;

struct Linear {
  Tensor weight;  // [in, out]
  std::optional<Tensor> bias;
};
struct Block {
  std::unordered_map<std::string, Linear> mlp;
  std::array<Tensor, 2> norm;  // scale, shift
};
struct Model {
  torch::nn::Embedding tokens{nullptr};
  std::vector<Block> layers;
  std::map<std::string, std::optional<Linear>> heads;
  std::string name = "mlp";
  double epsilon = 1e-5;
};

// Plain tensors require gradients, as a module's parameters do.
Linear linear(std::int64_t in, std::int64_t out, bool bias) {
  Linear made{torch::randn({in, out}).div_(4).requires_grad_(), {}};
  if (bias) made.bias = torch::zeros({out}).requires_grad_();
  return made;
}

Model make_model() {
  torch::manual_seed(11);
  Model model;
  model.tokens = torch::nn::Embedding(kVocabulary, kWidth);
  for (int i = 0; i < 2; ++i) {
    model.layers.push_back(
        {.mlp = {{"up", linear(kWidth, kHidden, true)}, {"down", linear(kHidden, kWidth, false)}},
         .norm = {torch::ones({kWidth}).requires_grad_(),
                  torch::zeros({kWidth}).requires_grad_()}});
  }
  model.heads = {{"classes", linear(kWidth, kClasses, true)}, {"none", std::nullopt}};
  return model;
}

Tensor apply(const Linear& linear, const Tensor& x) {
  const Tensor y = x.matmul(linear.weight);
  return linear.bias ? y + *linear.bias : y;
}

Tensor loss_of(Model& model, const Tensor& x, const Tensor& y) {
  Tensor h = model.tokens(x);
  for (const Block& block : model.layers) {
    const Tensor n = torch::layer_norm(h, {kWidth}, block.norm[0], block.norm[1], model.epsilon);
    h = h + apply(block.mlp.at("down"), torch::gelu(apply(block.mlp.at("up"), n)));
  }
  return torch::cross_entropy_loss(apply(*model.heads.at("classes"), h), y);
}

std::pair<Tensor, Tensor> batch(int step) {
  torch::manual_seed(100 + step);
  return {torch::randint(kVocabulary, {kBatch}), torch::randint(kClasses, {kBatch})};
}

struct Training {
  std::vector<double> losses;
  std::vector<PathLeaf> leaves;
};

constexpr int kSteps = 12;
constexpr double kRate = 1e-2;

// update(model, x, y) is one step and gives the loss.
template <class Update>
Training train(Model& model, const std::optional<Mesh>& mesh, const P& rows, Update update) {
  Training run;
  for (int step = 0; step < kSteps; ++step) {
    auto [x, y] = batch(step);
    if (mesh) x = device_put(x, {*mesh, rows}), y = device_put(y, {*mesh, rows});
    run.losses.push_back(update(model, x, y).template item<double>());
  }
  for (auto& leaf : tree_leaves_with_path(model))
    run.leaves.push_back({leaf.path, full(leaf.tensor.detach()).clone()});
  return run;
}

template <class Optimizer>
auto optimizer_step(Optimizer& optimizer) {
  return [&](Model& model, const Tensor& x, const Tensor& y) {
    optimizer.zero_grad();
    const Tensor loss = loss_of(model, x, y);
    loss.backward();
    optimizer.step();
    return loss.detach();
  };
}

Tensor sgd_step(Model& model, const Tensor& x, const Tensor& y) {
  auto [loss, gradients] = value_and_grad(loss_of)(model, x, y);
  torch::NoGradGuard no_grad;
  model = tree_map([](const Tensor& p, const Tensor& g) { return p - 0.1 * g; }, model, gradients);
  return loss;
}

const Training& dense_adamw() {
  static const Training run = [] {
    Model model = make_model();
    torch::optim::AdamW optimizer(tree_parameters(model), torch::optim::AdamWOptions(kRate));
    return train(model, std::nullopt, P(), optimizer_step(optimizer));
  }();
  return run;
}

// |got - expected| / max(1, |expected|) of losses and leaves.
void expect_equal(const Training& got, const Training& expected) {
  for (int i = 0; i < kSteps; ++i) EXPECT_NEAR(got.losses[i], expected.losses[i], 1e-6) << i;
  EXPECT_LT(got.losses.back(), got.losses.front());
  ASSERT_EQ(got.leaves.size(), expected.leaves.size());
  for (std::size_t i = 0; i < got.leaves.size(); ++i) {
    EXPECT_EQ(got.leaves[i].path, expected.leaves[i].path);
    expect_close(got.leaves[i].tensor, expected.leaves[i].tensor, got.leaves[i].path, 0, 1e-6);
  }
}

struct Setting {
  std::vector<MeshAxis> axes;
  P rows;  // of a batch
};

std::vector<Setting> settings() {
  return {{{{"fsdp", 8}, {"tp", 1}}, P("fsdp")},
          {{{"fsdp", 4}, {"tp", 2}}, P("fsdp")},
          {{{"dp", 2}, {"fsdp", 2}, {"tp", 2}}, P(axes("dp", "fsdp"))}};
}

// Path rules name the tensor-parallel axis.
PathRules paths() {
  return {{"mlp\\.up\\.weight", P(whole, "tp")},
          {"mlp\\.up\\.bias", P("tp")},
          {"mlp\\.down\\.weight", P("tp")},
          {"tokens\\.weight", P("tp")},
          {"classes\\.weight", P(whole, "tp")},
          {"classes\\.bias", P("tp")},
          {"norm\\.[01]$", P()}};
}

class Trees : public testing::TestWithParam<Setting> {
 protected:
  Runtime runtime_{{.devices = 8}};
  Mesh mesh_ = runtime_.make_mesh(GetParam().axes);
  P rows_ = GetParam().rows;
};

TEST_P(Trees, UnderFsdpAndPathRulesTrainAsDense) {
  Model model = make_model();
  shard(model, mesh_, {paths(), FsdpRule("fsdp", {.min_size = 64})});
  const auto& up = model.layers[1].mlp.at("up");
  const auto& down = model.layers[1].mlp.at("down");
  EXPECT_EQ(sharding_of(model.tokens->weight).spec, P(axes("tp", "fsdp")));
  EXPECT_EQ(sharding_of(up.weight).spec, P(whole, axes("tp", "fsdp")));
  EXPECT_EQ(sharding_of(*up.bias).spec, P("tp"));  // too small
  EXPECT_EQ(sharding_of(down.weight).spec, P(axes("tp", "fsdp")));
  EXPECT_EQ(sharding_of(model.heads.at("classes")->weight).spec, P("fsdp", "tp"));
  torch::optim::AdamW optimizer(tree_parameters(model), torch::optim::AdamWOptions(kRate));
  expect_equal(train(model, mesh_, rows_, optimizer_step(optimizer)), dense_adamw());
}

TEST_P(Trees, UnderZeroTrainAsDense) {
  for (const int stage : {1, 3}) {
    Model model = make_model();
    shard(model, mesh_, paths());
    Zero<torch::optim::AdamW> optimizer(tree_leaves(model), {.axis = "fsdp", .stage = stage},
                                        torch::optim::AdamWOptions(kRate));
    expect_equal(train(model, mesh_, rows_, optimizer_step(optimizer)), dense_adamw());
  }
}

TEST_P(Trees, AsValuesTrainAsDense) {
  Model dense = make_model();
  const Training expected = train(dense, std::nullopt, P(), sgd_step);
  Model model = make_model();
  shard(model, mesh_, {paths(), FsdpRule("fsdp", {.min_size = 64})});
  const auto before = sharding_of(model.layers[1].mlp.at("up").weight).spec;
  expect_equal(train(model, mesh_, rows_, sgd_step), expected);
  EXPECT_EQ(sharding_of(model.layers[1].mlp.at("up").weight).spec, before);
  EXPECT_EQ(model.name, "mlp");
}

INSTANTIATE_TEST_SUITE_P(Meshes, Trees, testing::ValuesIn(settings()),
                         [](const auto& info) { return name_of(info.param.axes) + "mesh"; });

TEST(TreesOnMeshes, RulesThatMissALeafNameItsPathAndChangeNothing) {
  Runtime runtime({.devices = 4});
  const Mesh mesh = runtime.make_mesh({{"tp", 4}});
  Model model = make_model();
  EXPECT_NE(message([&] {
              shard(model, mesh, {{"mlp", P("tp")}, {"norm", P()}, {"tokens", P()}});
            }).find("heads.classes.bias"),
            std::string::npos);
  for (const auto& leaf : tree_leaves(model)) EXPECT_FALSE(is_sharded(leaf));
}

TEST(TreesOnMeshes, ReplicateAndDeviceGetAreInverse) {
  Runtime runtime({.devices = 4});
  const Mesh mesh = runtime.make_mesh({{"tp", 4}});
  Model model = make_model();
  const Model dense = make_model();
  const Tensor handle = model.layers[0].norm[0];
  replicate(model, mesh);
  EXPECT_TRUE(is_sharded(handle) && handle.requires_grad());
  for (const auto& leaf : tree_leaves(model)) EXPECT_EQ(sharding_of(leaf).spec, P());
  device_get(model);
  const auto got = tree_leaves(model), expected = tree_leaves(dense);
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_FALSE(is_sharded(got[i]));
    EXPECT_TRUE(torch::equal(got[i], expected[i]));
  }
}

}  // namespace
}  // namespace meshtorch
