// SPDX-License-Identifier: Apache-2.0
//
// Optimizers on sharded modules take the dense steps: torch::optim as it is, and Zero around each, with
// schedulers, closures, clipping, tied and frozen parameters. The ledger shows that ZeRO-1 moves what it
// must and nothing inside the microbatch loop; random numbers do not depend on the mesh.
#include <gmock/gmock.h>

#include <meshtorch/models/gpt.h>
#include <meshtorch/models/mlp.h>
#include <meshtorch/tensor/dispatch.h>

#include "compare.h"

namespace mt = meshtorch;
namespace nn = torch::nn;
namespace optim = torch::optim;
using mt::P;
using testing::HasSubstr;

namespace {

constexpr int kSteps = 6;

mt::Mlp make_mlp() {
  torch::manual_seed(3);
  return mt::Mlp(mt::MlpOptions{
      .in = 6, .hidden = 16, .out = 4, .layers = 3, .activation = mt::Activation::tanh});
}

mt::Batch mlp_batch(int step, std::int64_t rows = 9) {
  torch::manual_seed(40 + static_cast<std::uint64_t>(step));
  return {torch::randn({rows, 6}), torch::randn({rows, 4})};
}

at::Tensor mse(mt::Mlp& model, const mt::Batch& batch) {
  return torch::mse_loss(model->forward(batch.inputs), batch.targets);
}

std::vector<mt::MeshAxis> dp_tp(std::int64_t dp, std::int64_t tp) {
  return {{"dp", dp}, {"tp", tp}};
}

class Optimizers : public testing::Test {
 protected:
  mt::Mesh grid() { return runtime.make_mesh(dp_tp(2, 2)); }
  mt::Mlp sharded_mlp(const mt::Mesh& mesh) {
    auto model = make_mlp();
    mt::shard(*model, mesh, mt::mlp_sharding());
    return model;
  }
  mt::Batch placed(const mt::Batch& batch, const mt::Mesh& mesh) {
    return {mt::device_put(batch.inputs, {mesh, P("dp")}),
            mt::device_put(batch.targets, {mesh, P("dp")})};
  }
  // One model trained by a plain optimizer on one device, one on the mesh.
  template <class Dense, class Sharded>
  void compare(Dense make_dense, Sharded make_sharded, double rtol = 1e-5, double atol = 1e-6) {
    auto dense = make_mlp();
    auto dense_optimizer = make_dense(dense->parameters());
    for (const auto& axes : {dp_tp(2, 2), dp_tp(4, 2), dp_tp(8, 1), dp_tp(1, 1)}) {
      if (!mt::reaches_all(runtime, axes)) continue;
      SCOPED_TRACE(mt::name_of(axes));
      auto mesh = runtime.make_mesh(axes);
      auto model = sharded_mlp(mesh);
      auto optimizer = make_sharded(model->parameters());
      if (axes[0].size == 2) {
        for (int step = 0; step < kSteps; ++step) {
          dense_optimizer->zero_grad();
          mse(dense, mlp_batch(step)).backward();
          dense_optimizer->step();
        }
      }
      for (int step = 0; step < kSteps; ++step) {
        optimizer->zero_grad();
        mse(model, placed(mlp_batch(step), mesh)).backward();
        optimizer->step();
      }
      const auto expected = dense->named_parameters();
      for (const auto& item : model->named_parameters()) {
        mt::expect_close(item.value(), expected[item.key()], item.key(), rtol, atol);
      }
    }
  }
  template <class Optimizer, class Options>
  void compare_plain(Options options) {
    const auto make = [=](std::vector<at::Tensor> parameters) {
      return std::make_unique<Optimizer>(parameters, options);
    };
    compare(make, make);
  }
  template <class Optimizer, class Options>
  void compare_zero(Options options) {
    compare(
        [=](std::vector<at::Tensor> parameters) {
          return std::make_unique<Optimizer>(parameters, options);
        },
        [=](std::vector<at::Tensor> parameters) {
          return std::make_unique<mt::Zero<Optimizer>>(parameters, mt::ZeroOptions{.axis = "dp"},
                                                       options);
        });
  }

  mt::Runtime runtime{{.devices = 8, .warn_fallback = false}};
};

TEST_F(Optimizers, PlainSgd) {
  compare_plain<optim::SGD>(optim::SGDOptions(0.1).momentum(0.9).weight_decay(0.01).nesterov(true));
}
TEST_F(Optimizers, PlainAdam) {
  compare_plain<optim::Adam>(optim::AdamOptions(0.01).amsgrad(true));
}
TEST_F(Optimizers, PlainAdamW) { compare_plain<optim::AdamW>(optim::AdamWOptions(0.01)); }
TEST_F(Optimizers, PlainRmsprop) {
  compare_plain<optim::RMSprop>(optim::RMSpropOptions(0.01).momentum(0.5));
}
TEST_F(Optimizers, PlainAdagrad) { compare_plain<optim::Adagrad>(optim::AdagradOptions(0.01)); }
TEST_F(Optimizers, ZeroSgd) { compare_zero<optim::SGD>(optim::SGDOptions(0.1).momentum(0.9)); }
TEST_F(Optimizers, ZeroAdam) { compare_zero<optim::Adam>(optim::AdamOptions(0.01)); }
TEST_F(Optimizers, ZeroAdamW) { compare_zero<optim::AdamW>(optim::AdamWOptions(0.01)); }
TEST_F(Optimizers, ZeroRmsprop) {
  compare_zero<optim::RMSprop>(optim::RMSpropOptions(0.01).centered(true));
}

TEST_F(Optimizers, Lbfgs) {
  for (const bool line_search : {false, true}) {
    auto options = optim::LBFGSOptions(0.5).max_iter(4);
    if (line_search) options.line_search_fn("strong_wolfe");
    const auto train = [&](auto& optimizer, mt::Mlp& model, const mt::Batch& batch) {
      for (int step = 0; step < 3; ++step) {
        optimizer.step([&] {
          optimizer.zero_grad();
          auto loss = mse(model, batch);
          loss.backward();
          return loss;
        });
      }
    };
    auto dense = make_mlp();
    optim::LBFGS dense_optimizer(dense->parameters(), options);
    train(dense_optimizer, dense, mlp_batch(0));
    auto mesh = grid();
    auto model = sharded_mlp(mesh);
    mt::Zero<optim::LBFGS> optimizer(model->parameters(), {.axis = "dp"}, options);
    train(optimizer, model, placed(mlp_batch(0), mesh));
    const auto expected = dense->named_parameters();
    for (const auto& item : model->named_parameters())
      mt::expect_close(item.value(), expected[item.key()], item.key(), 1e-3, 1e-4);
    EXPECT_LT(mse(model, placed(mlp_batch(0), mesh)).item<double>(), 0.8);
  }
}

TEST_F(Optimizers, SchedulersDriveZero) {
  auto dense = make_mlp();
  optim::SGD dense_optimizer(dense->parameters(), optim::SGDOptions(0.2));
  optim::StepLR dense_scheduler(dense_optimizer, 2, 0.5);
  auto mesh = grid();
  auto model = sharded_mlp(mesh);
  mt::Zero<optim::SGD> optimizer(model->parameters(), {.axis = "dp"}, optim::SGDOptions(0.2));
  optim::StepLR scheduler(optimizer, 2, 0.5);
  for (int step = 0; step < kSteps; ++step) {
    mse(dense, mlp_batch(step)).backward();
    dense_optimizer.step();
    dense_scheduler.step();
    dense_optimizer.zero_grad();
    mse(model, placed(mlp_batch(step), mesh)).backward();
    optimizer.step();
    scheduler.step();
    optimizer.zero_grad();
  }
  EXPECT_EQ(optimizer.param_groups()[0].options().get_lr(),
            dense_optimizer.param_groups()[0].options().get_lr());
  EXPECT_LT(optimizer.param_groups()[0].options().get_lr(), 0.2);
  const auto expected = dense->named_parameters();
  for (const auto& item : model->named_parameters())
    mt::expect_close(item.value(), expected[item.key()], item.key());
}

TEST_F(Optimizers, ZeroGradThatKeepsItsBuffers) {
  auto mesh = grid();
  auto dense = make_mlp();
  auto model = sharded_mlp(mesh);
  optim::SGD dense_optimizer(dense->parameters(), optim::SGDOptions(0.1));
  mt::Zero<optim::SGD> optimizer(model->parameters(), {.axis = "dp"}, optim::SGDOptions(0.1));
  for (int step = 0; step < kSteps; ++step) {
    mse(dense, mlp_batch(step)).backward();
    dense_optimizer.step();
    dense_optimizer.zero_grad(false);
    runtime.ledger().clear();
    mse(model, placed(mlp_batch(step), mesh)).backward();
    const auto inside =
        runtime.ledger().count([](const auto& entry) { return entry.axes == "dp"; });
    EXPECT_EQ(inside, 0) << runtime.ledger().to_string();
    optimizer.step();
    optimizer.zero_grad(false);
    for (const auto& parameter : model->parameters())
      EXPECT_EQ(parameter.grad().abs().sum().item<double>(), 0);
  }
  const auto expected = dense->named_parameters();
  for (const auto& item : model->named_parameters())
    mt::expect_close(item.value(), expected[item.key()], item.key());
}

// Cases 19 and 22: each element counts once, whatever its layout.
TEST_F(Optimizers, ClipNormOverMixedLayouts) {
  auto mesh = grid();
  const std::vector<P> specs{P(), P("tp"), P(mt::whole, "tp"), P("tp")};
  const std::vector<std::vector<std::int64_t>> shapes{{3, 3}, {4, 2}, {3, 4}, {5}};
  std::vector<at::Tensor> dense, sharded;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    dense.push_back(torch::randn(shapes[i]).requires_grad_());
    sharded.push_back(mt::device_put(dense[i].detach(), {mesh, specs[i]}).requires_grad_());
  }
  const auto loss = [&](const std::vector<at::Tensor>& p, const at::Tensor& rows) {
    at::Tensor total;
    for (const auto& parameter : p) {
      const auto each = (rows.unsqueeze(1) * parameter.flatten().pow(3).unsqueeze(0)).sum();
      total = total.defined() ? total + each : each;
    }
    return total;
  };
  const auto rows = torch::rand({6});
  loss(dense, rows).backward();
  const double norm = nn::utils::clip_grad_norm_(dense, 0.7);
  mt::Zero<optim::SGD> optimizer(sharded, {.axis = "dp", .clip_norm = 0.7}, optim::SGDOptions(1.0));
  loss(sharded, mt::device_put(rows, {mesh, P("dp")})).backward();
  std::vector<at::Tensor> copies;
  for (const auto& parameter : sharded) {
    copies.push_back(parameter.detach().clone().requires_grad_());
    copies.back().mutable_grad() = parameter.grad().clone();
  }
  EXPECT_NEAR(nn::utils::clip_grad_norm_(copies, 0.7), norm, 1e-4 * norm);
  for (std::size_t i = 0; i < copies.size(); ++i)
    mt::expect_close(copies[i].grad(), dense[i].grad(), "clipped by torch");
  optimizer.step();
  ASSERT_TRUE(optimizer.gradient_norm().has_value());
  EXPECT_NEAR(*optimizer.gradient_norm(), norm, 1e-5 * norm);
  for (std::size_t i = 0; i < specs.size(); ++i) {
    mt::expect_close(sharded[i], dense[i].detach() - dense[i].grad(),
                     "parameter " + std::to_string(i));
  }
}

TEST_F(Optimizers, FrozenParametersStay) {
  auto mesh = grid();
  auto dense = make_mlp();
  auto model = sharded_mlp(mesh);
  for (auto* each : {&dense, &model}) (*each)->parameters()[0].requires_grad_(false);
  optim::AdamW dense_optimizer(dense->parameters(), optim::AdamWOptions(0.05).weight_decay(0.1));
  mt::Zero<optim::AdamW> optimizer(model->parameters(), {.axis = "dp", .clip_norm = 1.0},
                                   optim::AdamWOptions(0.05).weight_decay(0.1));
  for (int step = 0; step < 3; ++step) {
    mse(dense, mlp_batch(step)).backward();
    nn::utils::clip_grad_norm_(dense->parameters(), 1.0);
    dense_optimizer.step();
    dense_optimizer.zero_grad();
    mse(model, placed(mlp_batch(step), mesh)).backward();
    optimizer.step();
    optimizer.zero_grad();
  }
  const auto expected = dense->named_parameters();
  for (const auto& item : model->named_parameters())
    mt::expect_close(item.value(), expected[item.key()], item.key(), 1e-4, 1e-5);
}

// Case 35.
TEST_F(Optimizers, StateBytesPerDeviceAreOneNth) {
  auto mesh = runtime.make_mesh(dp_tp(4, 2));
  auto model = sharded_mlp(mesh);
  mt::Zero<optim::AdamW> optimizer(model->parameters(), {.axis = "dp"}, optim::AdamWOptions(0.01));
  mse(model, placed(mlp_batch(0, 8), mesh)).backward();
  optimizer.step();
  std::int64_t expected = 0, got = 0;
  for (const auto& parameter : model->parameters()) {
    const auto local = mt::addressable_shards(parameter)[0].data.numel();
    const bool spread = mt::zero_spec(mt::sharding_of(parameter), parameter.sizes().vec(), "dp") !=
                        mt::sharding_of(parameter).spec;
    expected += 2 * (spread ? local / 4 : local);
  }
  for (const auto& shard : optimizer.shards()) {
    const auto& state = static_cast<const optim::AdamWParamState&>(
        *optimizer.state().at(shard.unsafeGetTensorImpl()));
    for (const auto& moment : {state.exp_avg(), state.exp_avg_sq()}) {
      EXPECT_EQ(mt::sharding_of(moment).spec, mt::sharding_of(shard).spec);
      got += mt::addressable_shards(moment)[0].data.numel();
    }
  }
  EXPECT_EQ(got, expected);
}

mt::GptOptions gpt_options(double dropout = 0.0, bool tied = false) {
  return {.vocabulary = 32,
          .length = 8,
          .width = 32,
          .layers = 2,
          .heads = 4,
          .dropout = dropout,
          .tied = tied};
}

mt::Gpt make_gpt(const mt::GptOptions& options) {
  torch::manual_seed(7);
  return mt::Gpt(options);
}

// Unequal numbers of valid targets in the rows.
mt::Batch tokens(int step, std::int64_t rows = 8) {
  torch::manual_seed(100 + static_cast<std::uint64_t>(step));
  auto ids = torch::randint(32, {rows, 9}, torch::kLong);
  auto targets = ids.slice(1, 1).clone();
  for (std::int64_t row = 0; row < rows; ++row) targets[row].slice(0, 8 - row % 5) = -100;
  return {ids.slice(1, 0, 8).contiguous(), targets};
}

void backward(mt::Gpt& model, const mt::Batch& batch, std::int64_t microbatches,
              const mt::Mesh& mesh) {
  for (const auto& micro : mt::microbatches(batch, microbatches, {mesh, P("dp")})) {
    mt::named_scope scope("microbatch");
    (model->loss(micro.inputs, micro.targets) * micro.weight()).backward();
  }
}

// Cases 31, 32 and 38.
TEST_F(Optimizers, MicrobatchesAddUpToTheBatch) {
  for (const bool tied : {false, true}) {
    auto dense = make_gpt(gpt_options(0, tied));
    dense->loss(tokens(0).inputs, tokens(0).targets).backward();
    for (const std::int64_t count : {1, 2, 3, 4, 8}) {
      for (const auto& axes : {dp_tp(4, 2), dp_tp(2, 2), dp_tp(8, 1)}) {
        SCOPED_TRACE(mt::name_of(axes) + std::to_string(count));
        auto mesh = runtime.make_mesh(axes);
        auto model = make_gpt(gpt_options(0, tied));
        mt::shard(*model, mesh, mt::gpt_sharding());
        backward(model, tokens(0), count, mesh);
        mt::expect_close(*model, *dense, 1e-4, 1e-6);
      }
    }
  }
}

// Case 34, and the closed formula.
TEST_F(Optimizers, LedgerOfAStep) {
  auto mesh = runtime.make_mesh(dp_tp(4, 2));
  for (const std::int64_t count : {1, 4, 8}) {
    auto model = make_gpt(gpt_options());
    mt::shard(*model, mesh, mt::gpt_sharding());
    mt::Zero<optim::AdamW> optimizer(model->parameters(), {.axis = "dp"},
                                     optim::AdamWOptions(1e-3));
    for (int step = 0; step < 2; ++step) {
      runtime.ledger().clear();
      backward(model, tokens(step, 32), count, mesh);
      const auto over_dp = [](const mt::LedgerEntry& entry) {
        return entry.axes.find("dp") != std::string::npos;
      };
      EXPECT_EQ(runtime.ledger().count(over_dp), 0) << runtime.ledger().to_string();
      EXPECT_EQ(
          runtime.ledger().count([](const auto& e) { return e.origin == mt::Origin::implied; }), 0);
      runtime.ledger().clear();
      optimizer.step();
      optimizer.zero_grad();
      const auto of = [&](mt::Collective kind) {
        return [=](const mt::LedgerEntry& entry) { return over_dp(entry) && entry.kind == kind; };
      };
      std::int64_t bytes = 0;
      for (const auto& parameter : model->parameters())
        bytes += static_cast<std::int64_t>(mt::addressable_shards(parameter)[0].data.nbytes());
      EXPECT_EQ(runtime.ledger().count(of(mt::Collective::reduce_scatter)), 1)
          << runtime.ledger().to_string();
      EXPECT_EQ(runtime.ledger().count(of(mt::Collective::all_gather)), 1)
          << runtime.ledger().to_string();
      EXPECT_EQ(runtime.ledger().count(of(mt::Collective::all_reduce)), 0)
          << runtime.ledger().to_string();
      EXPECT_EQ(runtime.ledger().bytes(of(mt::Collective::reduce_scatter)), bytes * 3 / 4);
      EXPECT_EQ(runtime.ledger().bytes(of(mt::Collective::all_gather)), bytes * 3 / 4);
    }
  }
}

// Case 46.
TEST_F(Optimizers, TiedWeightsStayOne) {
  auto mesh = runtime.make_mesh(dp_tp(4, 2));
  const auto options = gpt_options(0, true);
  auto dense = make_gpt(options);
  auto model = make_gpt(options);
  const auto count = dense->parameters().size();
  mt::shard(*model, mesh, mt::gpt_sharding());
  EXPECT_EQ(model->parameters().size(), count);
  optim::AdamW dense_optimizer(dense->parameters(), optim::AdamWOptions(1e-2));
  mt::Zero<optim::AdamW> optimizer(model->parameters(), {.axis = "dp"}, optim::AdamWOptions(1e-2));
  EXPECT_EQ(optimizer.shards().size(), count);
  for (int step = 0; step < 4; ++step) {
    auto loss = dense->loss(tokens(step).inputs, tokens(step).targets);
    loss.backward();
    dense_optimizer.step();
    dense_optimizer.zero_grad();
    double total = 0;
    for (const auto& micro : mt::microbatches(tokens(step), 2, {mesh, P("dp")})) {
      auto part = model->loss(micro.inputs, micro.targets) * micro.weight();
      part.backward();
      total += part.item<double>();
    }
    optimizer.step();
    optimizer.zero_grad();
    EXPECT_NEAR(total / loss.item<double>(), 1, 1e-5);
  }
  // Two modules that share a parameter object.
  nn::Linear first(4, 4), second(4, 4);
  second->weight = second->register_parameter("tied", first->weight);
  nn::Sequential both(first, second);
  mt::shard(*both, mesh, mt::PathRules{{".*", P()}});
  EXPECT_TRUE(mt::is_sharded(second->weight));
  EXPECT_TRUE(second->weight.is_same(first->weight));
}

TEST_F(Optimizers, ZeroRefusesByName) {
  auto mesh = grid();
  auto model = sharded_mlp(mesh);
  const auto make = [&](std::vector<at::Tensor> parameters, mt::ZeroOptions options) {
    return mt::message_of(
        [&] { mt::Zero<optim::SGD> zero(parameters, options, optim::SGDOptions(0.1)); });
  };
  EXPECT_EQ(make(model->parameters(), {.axis = "dp", .stage = 4}),
            "[Zero] stage: got 4, expected 0 to 3; 0: replicated, 1: optimizer state, 2: gradients "
            "too, 3: parameters too");
  EXPECT_THAT(make(model->parameters(), {.axis = "dp", .clip_norm = -1}),
              HasSubstr("[Zero] clip_norm: got -1, expected a positive number"));
  EXPECT_THAT(make({}, {}), HasSubstr("[Zero] parameters: there are none"));
  EXPECT_THAT(make({torch::ones({2})}, {}),
              HasSubstr("[Zero] parameter 0: is a plain tensor; shard(model, mesh, rules) first"));
  EXPECT_THAT(make(model->parameters(), {.axis = "pp"}),
              HasSubstr("\"pp\" is not an axis of mesh (dp=2, tp=2)"));
  EXPECT_THAT(make(model->parameters(), {.axis = "tp"}),
              HasSubstr("is sharded over \"tp\" already"));
  EXPECT_THAT(make({mt::device_put(torch::ones({2}), {mesh, P().unreduced("dp")})}, {}),
              HasSubstr("is unreduced"));
  auto other = runtime.make_mesh({{"dp", 4}});
  EXPECT_THAT(make({mt::device_put(torch::ones({2}), {mesh, P()}),
                    mt::device_put(torch::ones({2}), {other, P()})},
                   {}),
              HasSubstr("is on another mesh than parameter 0"));
  EXPECT_THAT(make({at::Tensor()}, {}), HasSubstr("[Zero] parameter 0: "));
}

// Case 44: what steps on a parameter is whole.
TEST_F(Optimizers, APlainOptimizerStepsOnReducedGradients) {
  auto mesh = grid();
  auto w = mt::device_put(torch::ones({3}), {mesh, P()}).requires_grad_();
  optim::SGD optimizer(std::vector<at::Tensor>{w}, optim::SGDOptions(1.0));
  (w * mt::device_put(torch::ones({4, 3}), {mesh, P("dp")})).sum().backward();
  ASSERT_EQ(mt::sharding_of(w.grad()).spec, P().unreduced("dp"));
  optimizer.step();
  EXPECT_EQ(mt::sharding_of(w).spec, P());
  for (const auto& shard : mt::addressable_shards(w))
    EXPECT_TRUE(torch::equal(shard.data.detach(), torch::full({3}, -3.0)));
}

// Cases 48 and 51.
TEST_F(Optimizers, RandomNumbersAreThoseOfOneDevice) {
  const auto draw = [&](const mt::Mesh& mesh, const P& spec) {
    runtime.manual_seed(5);
    std::vector<at::Tensor> all;
    const auto fresh = [&] { return mt::device_put(torch::zeros({7, 6}), {mesh, spec}); };
    all.push_back(mt::full(fresh().normal_(1, 2)));
    all.push_back(mt::full(fresh().uniform_(-1, 3)));
    all.push_back(mt::full(fresh().bernoulli_(0.3)));
    all.push_back(mt::full(fresh().random_(100)));
    all.push_back(mt::full(torch::rand_like(fresh())));
    all.push_back(mt::full(torch::randn_like(fresh())));
    all.push_back(mt::full(torch::bernoulli(fresh() + 0.5)));
    all.push_back(mt::full(torch::dropout(fresh() + 1, 0.4, true)));
    all.push_back(mt::full(torch::feature_dropout(fresh() + 1, 0.4, true)));
    all.push_back(mt::full(torch::randint_like(fresh(), 50)));
    all.push_back(torch::randperm(9));
    all.push_back(mt::full(torch::multinomial(fresh() + 1, 3)));
    all.push_back(mt::full(fresh().exponential_()));
    all.push_back(mt::full(at::normal(fresh(), fresh() + 1)));
    all.push_back(mt::full(torch::rrelu(fresh() - 1, 0.1, 0.3, true)));
    auto weight = fresh();
    torch::nn::init::kaiming_uniform_(weight);
    all.push_back(mt::full(weight));
    return all;
  };
  const auto one = draw(runtime.make_mesh({{"dp", 1}, {"tp", 1}}), P("dp", "tp"));
  for (const auto& axes : {dp_tp(2, 2), dp_tp(8, 1), dp_tp(4, 2), dp_tp(1, 8)}) {
    for (const P& spec :
         {P(), P("dp"), P("tp", "dp"), P(mt::axes("dp", "tp")), P("tp").unreduced("dp")}) {
      const auto all = draw(runtime.make_mesh(axes), spec);
      for (std::size_t i = 0; i < one.size(); ++i) {
        EXPECT_TRUE(torch::equal(all[i], one[i])) << mt::name_of(axes) << spec << " draw " << i;
      }
    }
  }
}

TEST_F(Optimizers, GptWithDropoutEqualsOneDevice) {
  const auto losses = [&](const std::vector<mt::MeshAxis>& axes, std::int64_t count) {
    runtime.manual_seed(11);
    auto mesh = runtime.make_mesh(axes);
    auto model = make_gpt(gpt_options(0.1));
    mt::shard(*model, mesh, mt::gpt_sharding());
    mt::Zero<optim::AdamW> optimizer(model->parameters(), {.axis = "dp", .clip_norm = 1.0},
                                     optim::AdamWOptions(3e-3));
    std::vector<double> all;
    for (int step = 0; step < 20; ++step) {
      double total = 0;
      for (const auto& micro : mt::microbatches(tokens(step), count, {mesh, P("dp")})) {
        auto loss = model->loss(micro.inputs, micro.targets) * micro.weight();
        loss.backward();
        total += loss.item<double>();
      }
      optimizer.step();
      optimizer.zero_grad();
      all.push_back(total);
    }
    return all;
  };
  for (const std::int64_t count : {1, 4}) {
    const auto one = losses(dp_tp(1, 1), count);
    for (const auto& axes : {dp_tp(2, 1), dp_tp(8, 1), dp_tp(4, 2), dp_tp(2, 4), dp_tp(1, 8),
                             std::vector<mt::MeshAxis>{{"pp", 2}, {"dp", 2}, {"tp", 2}}}) {
      const auto got = losses(axes, count);
      for (std::size_t step = 0; step < one.size(); ++step) {
        EXPECT_NEAR(got[step] / one[step], 1, 1e-6)
            << mt::name_of(axes) << count << " microbatches, step " << step;
      }
    }
  }
}

// The decisions kept do not grow with the steps of a steady program.
TEST_F(Optimizers, LearningRatesGrowNoCache) {
  auto mesh = grid();
  auto model = sharded_mlp(mesh);
  mt::Zero<optim::AdamW> optimizer(model->parameters(), {.axis = "dp", .clip_norm = 1.0},
                                   optim::AdamWOptions(0.01));
  optim::StepLR scheduler(optimizer, 1, 0.9);
  std::size_t after_two = 0;
  for (int step = 0; step < 8; ++step) {
    mse(model, placed(mlp_batch(step), mesh)).backward();
    optimizer.step();
    optimizer.zero_grad();
    scheduler.step();
    if (step == 1) after_two = runtime.dispatch().cached_decisions();
  }
  EXPECT_EQ(runtime.dispatch().cached_decisions(), after_two);
}

// What the program writes into a parameter between steps (a loaded checkpoint) is what the next step
// starts from; a parameter given twice is one.
TEST_F(Optimizers, ZeroTakesOutsideChangesAndOneOfTwins) {
  const auto mesh = runtime.make_mesh({{"dp", 4}});
  auto dense = torch::ones({8}).requires_grad_();
  auto weight = mt::device_put(torch::ones({8}), {mesh, P()}).requires_grad_();
  optim::SGD plain({dense}, optim::SGDOptions(0.5));
  mt::Zero<optim::SGD> zero({weight, weight}, {.axis = "dp"}, optim::SGDOptions(0.5));
  EXPECT_EQ(zero.shards().size(), 1u);
  for (int step = 0; step < 3; ++step) {
    {
      torch::NoGradGuard no_grad;
      dense.mul_(step + 2);
      weight.mul_(step + 2);
    }
    dense.square().sum().backward();
    weight.square().sum().backward();
    plain.step();
    zero.step();
    plain.zero_grad();
    zero.zero_grad();
    EXPECT_TRUE(mt::full(weight.detach()).allclose(dense.detach())) << "step " << step;
  }
}

}  // namespace
