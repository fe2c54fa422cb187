// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/tensor/constrain.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>

#include <meshtorch/base/testing.h>
#include <meshtorch/tensor/module.h>
#include <meshtorch/tensor/runtime.h>
#include <meshtorch/tensor/sharding.h>
#include <meshtorch/tensor/shared_reshard.h>

namespace meshtorch {
namespace {

namespace nn = torch::nn;

struct ReadersImpl : nn::Module {
  ReadersImpl() {
    for (const char* name : {"q", "k", "v"})
      linears.push_back(register_module(name, nn::Linear(8, 12)));
  }
  at::Tensor forward(const at::Tensor& x) {
    return linears[0](x) + linears[1](x).sin() + linears[2](x).cos();
  }
  std::vector<nn::Linear> linears;
};
TORCH_MODULE(Readers);

class Constrain : public testing::Test {
 protected:
  std::int64_t collectives(Collective kind) {
    return runtime.ledger().count([&](const LedgerEntry& entry) { return entry.kind == kind; });
  }
  std::string spec(const at::Tensor& x) { return sharding_of(x).spec.to_string(); }

  Runtime runtime{{.devices = 4}};
  Mesh mesh = runtime.make_mesh({{"dp", 2}, {"tp", 2}});
};

TEST_F(Constrain, ReportsWhatItAttached) {
  nn::Sequential model(nn::LayerNorm(nn::LayerNormOptions({8})), nn::Linear(8, 4));
  replicate(*model, mesh);
  const auto report =
      constrain(*model, {{"^0", P("dp", "tp")}, {.pattern = "1.weight", .output = P("dp")}});
  EXPECT_EQ(report.to_string(),
            "path      op   rule  input      output  note\n"
            "--------  ---  ----  ---------  ------  ----\n"
            "0.weight  any     0  P(dp, tp)\n"
            "0.bias    any     0  P(dp, tp)\n"
            "1.weight  any     1             P(dp)\n");
  const auto x = device_put(torch::randn({4, 6, 8}), {mesh, P("dp")});
  EXPECT_EQ(spec(model->forward(x)), "P(dp)");
  EXPECT_TRUE(Constraint::any());
  unconstrain(*model);
  EXPECT_FALSE(Constraint::any());
  runtime.ledger().clear();
  model->forward(x);
  EXPECT_TRUE(runtime.ledger().entries().empty());
}

TEST_F(Constrain, AParameterKeepsItWhereItIsWrittenAndViewed) {
  nn::Linear linear(8, 4);
  replicate(*linear, mesh);
  constrain(*linear, {{"weight", P("dp", "tp")}});
  torch::NoGradGuard no_grad;
  linear->weight.mul_(2);
  EXPECT_TRUE(is_constrained(linear->weight));
  EXPECT_TRUE(is_constrained(linear->weight.t().narrow(1, 0, 2)));
  EXPECT_FALSE(is_constrained(linear->bias));
  EXPECT_FALSE(is_constrained(linear->weight * 2));
}

TEST_F(Constrain, Errors) {
  nn::Sequential model(nn::Linear(8, 4), nn::LayerNorm(nn::LayerNormOptions({4})));
  EXPECT_EQ(message([&] {
              constrain(*model, {{"weight", P("dp")}});
            }),
            "[constrain] 0.weight: is a plain tensor; shard(module, mesh, rules) first");
  replicate(*model, mesh);
  EXPECT_EQ(
      message([&] {
        constrain(*model, {{"weight", P("dp")}, {"norm", P("dp")}});
      }),
      "[constrain] rule 1 \"norm\": fires for no parameter and for no child of a Sequential; correct it: "
      "paths are as 0.weight");
  EXPECT_EQ(
      message([&] {
        constrain(*model, {{"weight", P("dp")}, {"bias", P("pp")}});
      }),
      "[constrain] rule 1 \"bias\" input dim 0: axis \"pp\" is not an axis of mesh (dp=2, tp=2); "
      "use one of: dp, tp");
  EXPECT_FALSE(Constraint::any());  // nothing was changed

  constrain(*model, {{"1.weight", P("dp", whole, "tp")}, {.pattern = "0.weight", .output = P()}});
  const auto x = device_put(torch::randn({4, 8}), {mesh, P("dp")});
  EXPECT_EQ(
      message([&] { model->forward(x); }),
      "[constrain] 1.weight, input of layer_norm: P(dp, -, tp) names 3 dims, the tensor has 2; "
      "drop dims from the spec");
  constrain(*model, {{.pattern = "0.weight", .output = P("dp", whole, whole, "tp")}});
  EXPECT_EQ(
      message([&] { model->forward(x); }),
      "[constrain] 0.weight, output of linear: P(dp, -, -, tp) names 4 dims, the tensor has 2; "
      "drop dims from the spec");
}

TEST_F(Constrain, TiedParametersGetWhatFiresForEitherPath) {
  struct Holder : nn::Module {
    explicit Holder(const at::Tensor& weight) { register_parameter("weight", weight); }
  };
  const auto weight = torch::randn({6, 8});
  nn::Module model;
  model.register_module("table", std::make_shared<Holder>(weight));
  model.register_module("head", std::make_shared<Holder>(weight));
  replicate(model, mesh);
  EXPECT_EQ(message([&] {
              constrain(model, {{.pattern = "table", .output = P("dp")}, {"head", P("dp")}});
            }),
            "[constrain] head.weight: is the same tensor as table.weight, for which another rule "
            "fires; say in both rules for which op they are");
  constrain(model, {{.pattern = "table", .output = P("dp", "tp"), .op = "embedding"},
                    {.pattern = "head", .input = P("dp"), .op = "linear"}});
  const auto rows = at::embedding(weight, device_put(torch::tensor({{1, 2}, {3, 4}}), {mesh, P()}));
  EXPECT_EQ(spec(rows), "P(dp, tp)");
  EXPECT_EQ(spec(at::linear(rows, weight)), "P(dp)");
}

TEST_F(Constrain, ConsumersInARowShareOneCollective) {
  Readers plain, model;
  {
    torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < 6; ++i) model->parameters()[i].copy_(plain->parameters()[i]);
  }
  shard(*model, mesh, {{"", P("tp")}});
  constrain(*model, {{"weight", P("dp")}});
  const auto value = torch::randn({4, 6, 8});
  auto dense = value.clone().requires_grad_(), x = device_put(value, {mesh, P("dp", "tp")});
  x.requires_grad_();
  auto y = model->forward(x);
  EXPECT_EQ(runtime.ledger().entries().size(), 1u) << runtime.ledger().to_string();
  EXPECT_EQ(collectives(Collective::all_gather), 1);
  runtime.ledger().clear();
  y.square().sum().backward();
  EXPECT_EQ(collectives(Collective::reduce_scatter), 1) << runtime.ledger().to_string();
  EXPECT_EQ(collectives(Collective::all_gather), 0) << runtime.ledger().to_string();

  auto expected = plain->forward(dense);
  expected.square().sum().backward();
  EXPECT_TRUE(torch::allclose(full(y.detach()), expected, 1e-5, 1e-5));
  EXPECT_EQ(spec(x.grad()), "P(dp, tp)");
  EXPECT_TRUE(torch::allclose(full(x.grad()), dense.grad(), 1e-5, 1e-4));
  for (std::size_t i = 0; i < 6; ++i)
    EXPECT_TRUE(torch::allclose(full(model->parameters()[i].grad()), plain->parameters()[i].grad(),
                                1e-5, 1e-4));
}

TEST_F(Constrain, ASharedReshardIsNotKeptAlive) {
  for (const bool grad : {false, true}) {
    auto leaf = device_put(torch::randn({4, 8}), {mesh, P("dp", "tp")}).requires_grad_(grad);
    auto x = leaf * 1;
    auto result = shared_reshard(x, P("dp"));
    const c10::weak_intrusive_ptr<c10::StorageImpl> moved(
        sharded_view(result)->locals()[0].storage().getWeakStorageImpl());
    const c10::weak_intrusive_ptr<c10::StorageImpl> source(
        sharded_view(x)->locals()[0].storage().getWeakStorageImpl());
    result.reset();
    EXPECT_TRUE(moved.expired());
    EXPECT_FALSE(source.expired());
    x.reset();
    EXPECT_TRUE(source.expired());
  }
}

TEST_F(Constrain, OnlyTheSameTensorShares) {
  auto x = device_put(torch::randn({4, 8}), {mesh, P("dp", "tp")}).requires_grad_();
  const auto first = shared_reshard(x, P("dp"));
  const auto same = [&](const at::Tensor& other) {
    return sharded_view(other)->locals()[0].is_same(sharded_view(first)->locals()[0]);
  };
  EXPECT_TRUE(same(shared_reshard(x, P("dp"))));
  EXPECT_EQ(shared_reshard(x, P("dp")).grad_fn(), first.grad_fn());
  EXPECT_EQ(shared_reshard(x, P("dp"))._version(), first._version());
  EXPECT_EQ(collectives(Collective::all_gather), 1);
  {
    const auto plain = shared_reshard(x.detach(), P("dp"));
    EXPECT_FALSE(plain.requires_grad());
    EXPECT_FALSE(same(plain));
  }
  const auto again = shared_reshard(x, P("dp"));
  {
    torch::NoGradGuard no_grad;
    EXPECT_FALSE(shared_reshard(x, P("dp")).requires_grad());
    x.mul_(2);
    EXPECT_TRUE(full(shared_reshard(x, P("dp"))).equal(full(x)));
  }
  EXPECT_FALSE(same(shared_reshard(x, P(whole, "dp"))));
}

// One op on plain tensors and on a mesh, with the input and the output asked for.
struct Case {
  const char* name;
  std::function<std::vector<at::Tensor>()> parameters;  // weight first
  std::vector<std::int64_t> input;                      // empty: indices
  std::function<at::Tensor(const at::Tensor&, const std::vector<at::Tensor>&)> run;
};

at::Tensor input_of(const Case& c) {
  return c.input.empty() ? torch::randint(6, {4, 8}, torch::kLong)
                         : torch::randn(c.input, torch::kDouble);
}

std::vector<Case> cases() {
  using Ps = std::vector<at::Tensor>;
  const auto weight_bias = [](std::vector<std::int64_t> weight, std::int64_t bias) {
    return [=] {
      return Ps{torch::randn(weight, torch::kDouble), torch::randn({bias}, torch::kDouble)};
    };
  };
  const auto linear = [](const at::Tensor& x, const Ps& p) {
    return nn::functional::linear(x, p[0], p[1]);
  };
  return {
      {"Linear", weight_bias({5, 8}, 5), {4, 8, 8}, linear},
      {"LinearOfAMatrix", weight_bias({5, 8}, 5), {4, 8}, linear},
      {"LinearWithoutBias",
       weight_bias({5, 8}, 5),
       {4, 8},
       [](const at::Tensor& x, const Ps& p) { return nn::functional::linear(x, p[0]); }},
      {"ComposedLinear",
       weight_bias({5, 8}, 5),
       {4, 8, 8},
       [](const at::Tensor& x, const Ps& p) { return at::linear(x, p[0], p[1]); }},
      {"MatmulByTheWeight",
       weight_bias({8, 5}, 5),
       {4, 8, 8},
       [](const at::Tensor& x, const Ps& p) { return x.matmul(p[0]) + p[1]; }},
      {"WeightByTheMatrix",
       weight_bias({5, 4}, 8),
       {4, 8},
       [](const at::Tensor& x, const Ps& p) { return p[0].matmul(x) + p[1]; }},
      {"ScaledAddmm",
       weight_bias({8, 5}, 5),
       {4, 8},
       [](const at::Tensor& x, const Ps& p) { return at::addmm(p[1], x, p[0], 0.5, 3); }},
      {"LayerNorm",
       weight_bias({8}, 8),
       {4, 8, 8},
       [](const at::Tensor& x, const Ps& p) { return at::layer_norm(x, {8}, p[0], p[1]); }},
      {"RmsNorm",
       weight_bias({8}, 8),
       {4, 8, 8},
       [](const at::Tensor& x, const Ps& p) { return at::rms_norm(x, {8}, p[0]); }},
      {"GroupNorm",
       weight_bias({8}, 8),
       {4, 8, 3},
       [](const at::Tensor& x, const Ps& p) { return at::group_norm(x, 2, p[0], p[1]); }},
      {"Embedding",
       weight_bias({6, 8}, 8),
       {},
       [](const at::Tensor& x, const Ps& p) { return at::embedding(p[0], x) + p[1]; }},
      {"Conv1d",
       weight_bias({6, 8, 3}, 6),
       {4, 8, 5},
       [](const at::Tensor& x, const Ps& p) { return at::conv1d(x, p[0], p[1]); }},
      {"Conv1dSame",
       weight_bias({6, 8, 3}, 6),
       {4, 8, 5},
       [](const at::Tensor& x, const Ps& p) { return at::conv1d(x, p[0], p[1], 1, "same"); }},
      {"Conv2d",
       weight_bias({6, 8, 3, 3}, 6),
       {4, 8, 5, 5},
       [](const at::Tensor& x, const Ps& p) { return at::conv2d(x, p[0], p[1]); }},
      {"Conv3d",
       weight_bias({6, 8, 1, 3, 3}, 6),
       {4, 8, 2, 5, 5},
       [](const at::Tensor& x, const Ps& p) { return at::conv3d(x, p[0], p[1]); }},
  };
}

class ConstrainOp : public testing::TestWithParam<Case> {};

// What the op hands over is laid out as asked, and value and gradients, first and second, are the
// dense ones.
TEST_P(ConstrainOp, EqualsDense) {
  Runtime runtime({.devices = 4});
  const Mesh mesh = runtime.make_mesh({{"dp", 2}, {"tp", 2}});
  torch::manual_seed(1);
  auto dense = GetParam().parameters();
  auto input = input_of(GetParam());
  nn::ParameterDict module;
  const std::vector<std::string> names{"weight", "bias"};
  for (std::size_t i = 0; i < dense.size(); ++i)
    module->insert(names[i], dense[i].clone().requires_grad_());
  replicate(*module, mesh);
  constrain(*module, {{"weight", P("dp", "tp"), P("tp", "dp")}});

  const auto differentiate = [&](at::Tensor x, std::vector<at::Tensor> parameters) {
    std::vector<at::Tensor> of;
    if (x.is_floating_point()) of.push_back(x.requires_grad_());
    for (at::Tensor& parameter : parameters) of.push_back(parameter.requires_grad_());
    std::vector<at::Tensor> results{GetParam().run(x, parameters)};
    const auto gradients = torch::autograd::grad({results[0].sin().sum()}, of, {},
                                                 /*retain_graph=*/true, /*create_graph=*/true,
                                                 /*allow_unused=*/true);
    at::Tensor penalty = torch::zeros({}, torch::kDouble);
    for (const at::Tensor& gradient : gradients) {
      if (gradient.defined()) penalty = penalty + gradient.square().sum();
    }
    const auto second = torch::autograd::grad({penalty}, of, {}, true, false, true);
    results.insert(results.end(), gradients.begin(), gradients.end());
    results.insert(results.end(), second.begin(), second.end());
    return results;
  };
  const auto expected = differentiate(input.clone(), dense);
  const auto got =
      differentiate(device_put(input, {mesh, P()}), {module->get("weight"), module->get("bias")});
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(got[i].defined(), expected[i].defined()) << i;
    if (!expected[i].defined()) continue;
    EXPECT_TRUE(torch::allclose(full(got[i].detach()), expected[i].detach(), 1e-9, 1e-9)) << i;
  }
  EXPECT_EQ(sharding_of(got[0]).spec.to_string(), "P(tp, dp)");
  torch::NoGradGuard no_grad;
  EXPECT_EQ(sharding_of(GetParam().run(device_put(input, {mesh, P()}),
                                       {module->get("weight"), module->get("bias")}))
                .spec.to_string(),
            "P(tp, dp)");
}

INSTANTIATE_TEST_SUITE_P(Ops, ConstrainOp, testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

TEST_F(Constrain, APlainActivationIsPlaced) {
  nn::LayerNorm norm(nn::LayerNormOptions({8}));
  replicate(*norm, mesh);
  constrain(*norm, {{"weight", P("dp", "tp")}});
  EXPECT_EQ(spec(norm(torch::randn({4, 6, 8}))), "P(dp, tp)");
}

TEST_F(Constrain, InInferenceMode) {
  nn::LayerNorm norm(nn::LayerNormOptions({8}));
  replicate(*norm, mesh);
  constrain(*norm, {{"weight", P("dp", "tp")}});
  c10::InferenceMode inference;
  EXPECT_EQ(spec(norm(device_put(torch::randn({4, 6, 8}), {mesh, P()}))), "P(dp, tp)");
}

TEST_F(Constrain, OneDeviceHasNothingToLayOut) {
  const Mesh one({{"dp", 1}, {"tp", 1}});
  nn::Linear linear(8, 4);
  replicate(*linear, one);
  constrain(*linear, {{"weight", P("dp", whole, whole, "tp")}});
  EXPECT_EQ(linear(device_put(torch::randn({4, 8}), {one, P()})).size(1), 4);
}

}  // namespace
}  // namespace meshtorch
