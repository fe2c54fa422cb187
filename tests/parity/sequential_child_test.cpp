// SPDX-License-Identifier: Apache-2.0
//
// Constraints and remat around the children of a Sequential: values and gradients are those of the dense
// model, whatever lies how.
#include <meshtorch/tensor/sequential_child.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <meshtorch/base/testing.h>
#include <meshtorch/tensor/constrain.h>
#include <meshtorch/tensor/module.h>
#include <meshtorch/tensor/runtime.h>
#include <meshtorch/tensor/sharding.h>
#include <meshtorch/train/remat.h>

namespace mt = meshtorch;
namespace nn = torch::nn;
using mt::P;
using mt::whole;

namespace {

struct BlockImpl : nn::Cloneable<BlockImpl> {
  BlockImpl() { reset(); }
  void reset() override {
    up = register_module("up", nn::Linear(8, 16));
    down = register_module("down", nn::Linear(16, 8));
  }
  at::Tensor forward(const at::Tensor& x) {
    ++runs;
    return x + down(torch::gelu(up(x)));
  }
  nn::Linear up{nullptr}, down{nullptr};
  int runs = 0;
};
TORCH_MODULE(Block);

struct ModelImpl : nn::Module {
  ModelImpl() {
    blocks = register_module("blocks", nn::Sequential({{"first", nn::AnyModule(Block())},
                                                       {"drop", nn::AnyModule(nn::Dropout(0.5))},
                                                       {"last", nn::AnyModule(Block())}}));
  }
  at::Tensor forward(const at::Tensor& x) { return blocks->forward(x); }
  nn::Sequential blocks{nullptr};
};
TORCH_MODULE(Model);

class SequentialChildren : public testing::Test {
 protected:
  SequentialChildren() {
    torch::manual_seed(1);
    model = Model();
    model->eval();
    x = torch::randn({4, 6, 8});
    expected = model->forward(x);
    expected.square().sum().backward();
    for (const auto& p : model->parameters()) gradients.push_back(p.grad().clone());
    model->zero_grad();
    for (auto& block : {"first", "last"}) block_of(block).runs = 0;
  }
  BlockImpl& block_of(const std::string& name) {
    return *model->blocks->named_children()[name]->as<Block>();
  }
  void expect_dense(const at::Tensor& y) {
    EXPECT_TRUE(torch::allclose(mt::full(y), expected, 1e-5, 1e-6));
    y.square().sum().backward();
    const auto parameters = model->parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i)
      EXPECT_TRUE(torch::allclose(mt::full(parameters[i].grad()), gradients[i], 1e-4, 1e-5)) << i;
  }
  std::vector<std::string> paths() { return model->named_parameters().keys(); }
  static std::string spec(const at::Tensor& x) { return mt::sharding_of(x).spec.to_string(); }

  mt::Runtime runtime{{.devices = 4}};
  mt::Mesh mesh = runtime.make_mesh({{"dp", 2}, {"tp", 2}});
  Model model{nullptr};
  at::Tensor x, expected;
  std::vector<at::Tensor> gradients;
};

TEST_F(SequentialChildren, AConstraintLiesAroundTheChild) {
  const auto before = paths();
  mt::replicate(*model, mesh);
  const auto report =
      mt::constrain(*model, {{R"(first\.up\.weight)", P("dp")},
                             {R"(^blocks\.drop$)", P("dp", "tp")},
                             {.pattern = "last", .output = P(mt::whole, "dp"), .op = "module"}});
  EXPECT_EQ(report.to_string(),
            "path                    op      rule  input      output    note\n"
            "----------------------  ------  ----  ---------  --------  ----\n"
            "blocks.first.up.weight  any        0  P(dp)\n"
            "blocks.drop             module     1  P(dp, tp)\n"
            "blocks.last             module     2             P(-, dp)\n");
  EXPECT_EQ(paths(), before);
  std::string given;  // to the last block, from the dropout
  mt::set_around(mt::sequential_children(*model)[2], mt::AroundKind::remat,
                 [&](const mt::TensorForward& forward, const at::Tensor& x) {
                   given = spec(x);
                   return forward(x);
                 });
  const auto y = model->forward(mt::device_put(x, {mesh, P("dp")}));
  EXPECT_EQ(given, "P(dp, tp)");
  EXPECT_EQ(spec(y), "P(-, dp)");
  expect_dense(y);
}

TEST_F(SequentialChildren, WithoutItTheyAreWhatTheyWere) {
  mt::replicate(*model, mesh);
  mt::constrain(*model, {{.pattern = "last", .output = P("dp", "tp"), .op = "module"}});
  EXPECT_EQ(model->blocks->ptr(2)->as<Block>(), nullptr);
  mt::constrain(*model, {{.pattern = "last", .output = P("dp"), .op = "module"}});
  const auto input = mt::device_put(x, {mesh, P("dp")});
  EXPECT_EQ(spec(model->forward(input)), "P(dp)");
  mt::unconstrain(*model);
  EXPECT_EQ(model->blocks->ptr<BlockImpl>(2).get(), &block_of("last"));
  EXPECT_EQ(model->blocks->ptr<BlockImpl>(0).get(), &block_of("first"));
  runtime.ledger().clear();
  model->forward(input);
  EXPECT_TRUE(runtime.ledger().entries().empty());
}

TEST_F(SequentialChildren, RematRunsAChildAgain) {
  mt::replicate(*model, mesh);
  const auto places = mt::sequential_children(*model);
  mt::set_around(
      places[0], mt::AroundKind::remat,
      [](const mt::TensorForward& forward, const at::Tensor& x) { return mt::remat(forward, x); });
  expect_dense(model->forward(mt::device_put(x, {mesh, P("dp")})));
  EXPECT_EQ(block_of("first").runs, 2);
  EXPECT_EQ(block_of("last").runs, 1);
}

TEST_F(SequentialChildren, AClonedSequentialHasTheSameAroundItsOwn) {
  mt::replicate(*model, mesh);
  mt::constrain(*model, {{.pattern = "first|drop", .output = P("dp", "tp"), .op = "module"}});
  mt::device_get(*model);
  const auto copy = std::dynamic_pointer_cast<nn::SequentialImpl>(model->blocks->clone());
  EXPECT_EQ(copy->named_parameters().keys(), model->blocks->named_parameters().keys());
  copy->train();
  EXPECT_FALSE(torch::equal(copy->forward(x), copy->forward(x)));  // the dropout knows it
  copy->eval();
  at::NoGradGuard no_grad;
  for (auto& parameter : copy->parameters()) parameter.zero_();
  mt::replicate(*copy, mesh);
  const auto y = copy->forward(mt::device_put(x, {mesh, P("dp")}));
  EXPECT_EQ(spec(y), "P(dp, tp)");
  EXPECT_TRUE(torch::equal(mt::full(y), x));  // of blocks whose weights are zero
  EXPECT_FALSE(torch::equal(model->forward(x), x));
  mt::unconstrain(*copy);
  EXPECT_EQ(spec(copy->forward(mt::device_put(x, {mesh, P("dp")}))), "P(dp)");
}

TEST_F(SequentialChildren, OfContainersInContainers) {
  struct NestedImpl : nn::SequentialImpl {
    using SequentialImpl::SequentialImpl;
    at::Tensor forward(at::Tensor x) { return SequentialImpl::forward(x); }
  };
  nn::Sequential outer(nn::Linear(8, 8),
                       std::make_shared<NestedImpl>(nn::ReLU(), nn::Linear(8, 8)));
  std::vector<std::string> paths;
  for (const auto& place : mt::sequential_children(*outer)) paths.push_back(place.path);
  EXPECT_THAT(paths, testing::ElementsAre("0", "1", "1.0", "1.1"));
  mt::replicate(*outer, mesh);
  mt::constrain(*outer, {{"^1$", P("dp")}, {R"(^1\.0$)", {}, P("dp", "tp")}});
  EXPECT_EQ(spec(outer->forward(mt::device_put(torch::randn({4, 8}), {mesh, P()}))), "P(dp) unreduced(tp)");
}

TEST_F(SequentialChildren, Errors) {
  nn::Sequential model(nn::Linear(8, 8), nn::LSTM(8, 8));
  mt::replicate(*model, mesh);
  mt::constrain(*model, {{.pattern = "1", .input = P(mt::whole, "dp"), .op = "module"}});
  const auto input = mt::device_put(x, {mesh, P()});
  EXPECT_EQ(mt::message([&] { model->forward(input); }),
            "[constrain] 1: returns something else than a tensor; call reshard or remat in the "
            "module that uses it");
  mt::constrain(*model, {{.pattern = "1", .input = P(whole, whole, whole, "dp"), .op = "module"}});
  EXPECT_EQ(
      mt::message([&] { model->forward(input); }),
      "[constrain] 1, input: P(-, -, -, dp) names 4 dims, the tensor has 3; drop dims from the "
      "spec");
  const auto shared = std::make_shared<nn::SequentialImpl>(nn::Linear(8, 8));
  nn::Module twice;
  twice.register_module("a", shared);
  twice.register_module("b", shared);
  mt::replicate(twice, mesh);
  EXPECT_EQ(
      mt::message([&] {
        mt::constrain(twice, {{R"(^a\.0$)", P("dp")}, {R"(^b\.0$)", P()}});
      }),
      "[constrain] b.0: is the same module as a.0, for which another rule fires; make one rule "
      "of both");
}

}  // namespace
