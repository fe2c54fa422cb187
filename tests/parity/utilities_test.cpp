// SPDX-License-Identifier: Apache-2.0
//
// What a libtorch program calls around its model, on a sharded one: parameter groups, schedulers,
// clipping, zero_grad, LBFGS, clone, to, train and eval, parameters as one vector. Each against the same
// lines on a plain model.
#include <gmock/gmock.h>

#include <filesystem>

#include <meshtorch/models/mlp.h>

#include "compare.h"

namespace mt = meshtorch;
namespace nn = torch::nn;
namespace optim = torch::optim;
using mt::P;
using testing::AllOf;
using testing::HasSubstr;

namespace {

mt::Mlp make_mlp() {
  torch::manual_seed(5);
  return mt::Mlp(mt::MlpOptions{
      .in = 6, .hidden = 16, .out = 4, .layers = 3, .activation = mt::Activation::tanh});
}

struct Data {
  at::Tensor x, y;
};

Data batch(int step) {
  torch::manual_seed(90 + static_cast<std::uint64_t>(step));
  return {torch::randn({9, 6}), torch::randn({9, 4})};
}

// A sharded model and a plain one that must stay equal.
class Utilities : public testing::Test {
 protected:
  Utilities() { mt::shard(*model, mesh, mt::mlp_sharding()); }

  Data put(const Data& data) {
    return {mt::device_put(data.x, {mesh, P("dp")}), mt::device_put(data.y, {mesh, P("dp")})};
  }
  // The same lines on both: body(model, batch of a step).
  template <class Body>
  void on_both(Body body) {
    body(plain, [](int step) { return batch(step); });
    body(model, [this](int step) { return put(batch(step)); });
    mt::expect_close(*model, *plain, 1e-4, 1e-5);
  }
  static at::Tensor loss(mt::Mlp& net, const Data& data) {
    return torch::mse_loss(net->forward(data.x), data.y);
  }

  mt::Runtime runtime{{.devices = 8, .warn_fallback = false}};
  mt::Mesh mesh = runtime.make_mesh({{"dp", 2}, {"tp", 2}});
  mt::Mlp plain = make_mlp();
  mt::Mlp model = make_mlp();
};

TEST_F(Utilities, ParameterGroups) {
  on_both([](mt::Mlp& net, auto data) {
    std::vector<at::Tensor> weights, biases;
    for (auto& item : net->named_parameters())
      (item.key().ends_with("bias") ? biases : weights).push_back(item.value());
    std::vector<optim::OptimizerParamGroup> groups;
    groups.emplace_back(weights, std::make_unique<optim::AdamWOptions>(
                                     optim::AdamWOptions(0.01).weight_decay(0.3)));
    groups.emplace_back(biases, std::make_unique<optim::AdamWOptions>(
                                    optim::AdamWOptions(0.05).weight_decay(0).amsgrad(true)));
    optim::AdamW optimizer(groups, optim::AdamWOptions(0.01));
    for (int step = 0; step < 5; ++step) {
      optimizer.zero_grad();
      loss(net, data(step)).backward();
      optimizer.step();
    }
  });
}

TEST_F(Utilities, Schedulers) {
  on_both([](mt::Mlp& net, auto data) {
    optim::SGD optimizer(net->parameters(), optim::SGDOptions(0.3).momentum(0.8).nesterov(true));
    optim::StepLR steps(optimizer, 2, 0.5);
    optim::ReduceLROnPlateauScheduler plateau(
        optimizer, optim::ReduceLROnPlateauScheduler::SchedulerMode::min, 0.5f, 0);
    for (int step = 0; step < 6; ++step) {
      optimizer.zero_grad();
      auto value = loss(net, data(step));
      value.backward();
      optimizer.step();
      steps.step();
      plateau.step(value.template item<float>());
    }
  });
}

TEST_F(Utilities, Clipping) {
  on_both([](mt::Mlp& net, auto data) {
    optim::SGD optimizer(net->parameters(), 0.5);
    for (int step = 0; step < 4; ++step) {
      optimizer.zero_grad();
      (loss(net, data(step)) * 10).backward();
      if (step % 2 == 0) {
        nn::utils::clip_grad_value_(net->parameters(), 0.05);
      } else {
        nn::utils::clip_grad_norm_(net->parameters(), 0.5, step == 1 ? 2.0 : INFINITY);
      }
      optimizer.step();
    }
  });
}

TEST_F(Utilities, ZeroGradBothWays) {
  on_both([](mt::Mlp& net, auto data) {
    for (int step = 0; step < 4; ++step) {
      net->zero_grad(step % 2 == 0);
      for (const auto& parameter : net->parameters())
        EXPECT_EQ(parameter.grad().defined(), step % 2 == 1);
      loss(net, data(step)).backward();
      loss(net, data(step + 1)).backward();
    }
  });
}

TEST_F(Utilities, LbfgsAsItIs) {
  on_both([](mt::Mlp& net, auto data) {
    optim::LBFGS optimizer(net->parameters(),
                           optim::LBFGSOptions(0.5).max_iter(4).line_search_fn("strong_wolfe"));
    for (int step = 0; step < 3; ++step) {
      optimizer.step([&] {
        optimizer.zero_grad();
        auto value = loss(net, data(0));
        value.backward();
        return value;
      });
    }
  });
}

TEST_F(Utilities, AllPlainOptimizersWithDecay) {
  on_both([](mt::Mlp& net, auto data) {
    const auto train = [&](auto&& optimizer) {
      for (int step = 0; step < 2; ++step) {
        optimizer.zero_grad();
        loss(net, data(step)).backward();
        optimizer.step();
      }
    };
    train(optim::SGD(net->parameters(),
                     optim::SGDOptions(0.1).weight_decay(0.1).dampening(0.2).momentum(0.5)));
    train(optim::Adam(net->parameters(), optim::AdamOptions(0.01).weight_decay(0.1).amsgrad(true)));
    train(optim::Adagrad(net->parameters(),
                         optim::AdagradOptions(0.01).weight_decay(0.1).lr_decay(0.1)));
    train(optim::RMSprop(net->parameters(),
                         optim::RMSpropOptions(0.01).momentum(0.5).weight_decay(0.1)));
  });
}

TEST_F(Utilities, OptimizerStateIsSavedAndLoaded) {
  const auto file = std::filesystem::temp_directory_path() /
                    ("meshtorch-optimizer-" + std::to_string(::getpid()) + ".pt");
  optim::AdamW optimizer(model->parameters(), optim::AdamWOptions(0.01));
  optimizer.zero_grad();
  loss(model, put(batch(0))).backward();
  optimizer.step();
  // libtorch's own archive reads an element's memory, which lies on the devices: an error that says so.
  EXPECT_THAT(mt::message_of([&] { torch::save(optimizer, file.string()); }), HasSubstr("full"));
  std::filesystem::remove(file);
}

TEST_F(Utilities, CloneToTrainEval) {
  nn::Sequential plain_net(nn::Linear(6, 16), nn::BatchNorm1d(16), nn::Tanh(), nn::Linear(16, 4));
  auto net = std::dynamic_pointer_cast<nn::SequentialImpl>(plain_net->clone());
  mt::shard(
      *net, mesh,
      mt::PathRules{{"0.weight", P("tp")}, {"0.bias", P("tp")}, {"3.weight", P(mt::whole, "tp")}}
          .otherwise(mt::Unmatched::replicate));
  const auto lines = [](nn::SequentialImpl& model, const Data& data) {
    auto copy = std::dynamic_pointer_cast<nn::SequentialImpl>(model.clone());
    copy->to(torch::kDouble);
    auto value =
        torch::mse_loss(copy->forward(data.x.to(torch::kDouble)), data.y.to(torch::kDouble));
    EXPECT_EQ(value.scalar_type(), torch::kDouble);
    value.backward();
    for (const auto& parameter : model.parameters()) EXPECT_FALSE(parameter.grad().defined());
    model.train();
    torch::mse_loss(model.forward(data.x), data.y).backward();
    model.eval();  // by the running statistics of the batch before
    torch::mse_loss(model.forward(data.x), data.y).backward();
    return copy;
  };
  const auto copy = lines(*net, put(batch(0)));
  const auto plain_copy = lines(*plain_net, batch(0));
  mt::expect_close(*net, *plain_net);
  mt::expect_close(*copy, *plain_copy, 1e-9, 1e-9);
  EXPECT_EQ(mt::sharding_of(copy->named_parameters()["0.weight"]).spec, P("tp"));
}

TEST_F(Utilities, ParametersAsOneVector) {
  const auto dense = nn::utils::parameters_to_vector(plain->parameters());
  for (const P& spec : {P(), P("dp"), P(mt::axes("tp", "dp"))}) {
    const auto vector = mt::parameters_to_vector(model->parameters(), spec);
    EXPECT_EQ(mt::sharding_of(vector).spec, spec);
    EXPECT_TRUE(torch::equal(mt::full(vector.detach()), dense));
    // Back, scaled: each parameter keeps its layout.
    std::vector<P> before;
    for (const auto& parameter : model->parameters())
      before.push_back(mt::sharding_of(parameter).spec);
    runtime.ledger().clear();
    {
      mt::mode_scope strict(mt::Mode::strict);  // everything that moves was asked for
      mt::vector_to_parameters(vector.detach() * 2, model->parameters());
    }
    EXPECT_EQ(
        runtime.ledger().count([](const auto& e) { return e.kind == mt::Collective::all_gather; }),
        spec == P() ? 0 : 1);
    const auto parameters = model->parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      EXPECT_EQ(mt::sharding_of(parameters[i]).spec, before[i]);
      mt::expect_close(parameters[i], plain->parameters()[i] * 2, "parameter");
    }
    mt::vector_to_parameters(dense, model->parameters());
    mt::expect_close(*model, *plain, 0, 0);
  }
}

TEST_F(Utilities, TheVectorHasAGradient) {
  on_both([this](mt::Mlp& net, auto) {
    const auto parameters = net->parameters();
    const auto vector = mt::is_sharded(parameters[0])
                            ? mt::parameters_to_vector(parameters, P("dp"))
                            : nn::utils::parameters_to_vector(parameters);
    (vector.square().sum() / 2).backward();
  });
  for (const auto& parameter : model->parameters())
    mt::expect_close(parameter.grad(), mt::full(parameter.detach()), "gradient of half its square");
}

TEST_F(Utilities, VectorErrors) {
  const auto parameters = model->parameters();
  EXPECT_THAT(mt::message_of([&] { mt::parameters_to_vector({}); }),
              HasSubstr("[parameters_to_vector] parameters: are none"));
  EXPECT_THAT(mt::message_of([&] {
                mt::parameters_to_vector({parameters[0], torch::ones({2})});
              }),
              AllOf(HasSubstr("parameters[1]: is plain, the first is on mesh"), HasSubstr("dp=2")));
  const auto other = mt::device_put(torch::ones({2}), {runtime.make_mesh({{"x", 2}}), P()});
  EXPECT_THAT(mt::message_of([&] {
                mt::parameters_to_vector({parameters[0], other});
              }),
              HasSubstr("parameters[1]: is on mesh"));
  EXPECT_THAT(mt::message_of([&] {
                mt::parameters_to_vector(
                    {parameters[0], mt::replicate(torch::ones({2}, torch::kDouble), mesh)});
              }),
              HasSubstr("is of dtype Double, the first of Float"));
  const auto before = mt::full(parameters[0].detach()).clone();
  for (const auto& bad : {torch::ones({3}), torch::ones({3, 3}), at::Tensor()}) {
    EXPECT_THAT(mt::message_of([&] { mt::vector_to_parameters(bad, parameters); }),
                HasSubstr("[vector_to_parameters] vector: "));
  }
  EXPECT_TRUE(torch::equal(mt::full(parameters[0].detach()), before));
  const auto vector = mt::parameters_to_vector({torch::ones({2, 2}), torch::zeros({1})});
  EXPECT_TRUE(torch::equal(vector, torch::tensor({1.f, 1.f, 1.f, 1.f, 0.f})));
}

}  // namespace
