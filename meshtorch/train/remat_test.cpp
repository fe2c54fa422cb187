// SPDX-License-Identifier: Apache-2.0
//
// Every program here runs with and without remat; what it gives must be the same to the bit.
#include <meshtorch/train/remat.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <ATen/autocast_mode.h>

#include <meshtorch/base/error.h>
#include <meshtorch/tensor/testing.h>

namespace meshtorch {
namespace {

using testing::HasSubstr;
using Tensors = std::vector<at::Tensor>;

// remat(fn, inputs...) or fn(inputs...).
struct Caller {
  bool with = true;
  template <class Fn, class... Inputs>
  auto operator()(Fn fn, const Inputs&... inputs) const {
    return with ? remat(fn, inputs...) : fn(inputs...);
  }
};

// What a program leaves behind, without remat and with it, from the same random state.
template <class Program>
void expect_same(Program program, double tolerance = 0) {
  torch::manual_seed(11);
  Tensors expected = program(Caller{false});
  expected.push_back(torch::rand({3}));
  torch::manual_seed(11);
  Tensors got = program(Caller{true});
  got.push_back(torch::rand({3}));
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].defined(), expected[i].defined()) << i;
    if (!got[i].defined()) continue;
    EXPECT_TRUE(torch::allclose(got[i], expected[i], tolerance, 0))
        << i << ": " << got[i] << expected[i];
    EXPECT_EQ(got[i].requires_grad(), expected[i].requires_grad()) << i;
  }
}

Tensors gradients_of(const Tensors& parameters) {
  Tensors gradients;
  for (const auto& parameter : parameters) gradients.push_back(parameter.grad());
  return gradients;
}

torch::nn::Sequential dropout_mlp() {
  return torch::nn::Sequential(torch::nn::Linear(6, 16), torch::nn::GELU(), torch::nn::Dropout(0.4),
                               torch::nn::Linear(16, 6), torch::nn::Dropout(0.2));
}

at::Tensor leaf(at::IntArrayRef sizes) { return torch::randn(sizes).set_requires_grad(true); }

TEST(Remat, MlpWithDropout) {
  expect_same([](Caller call) {
    auto first = dropout_mlp(), second = dropout_mlp();
    const auto x = leaf({4, 6});
    auto y = call([=](const at::Tensor& in) mutable { return first->forward(in); }, x);
    y = call([=](const at::Tensor& in) mutable { return second->forward(in); }, y);
    const auto noise = torch::rand({4, 6});
    (y * noise).sum().backward();
    Tensors result = gradients_of(first->parameters());
    for (const auto& gradient : gradients_of(second->parameters())) result.push_back(gradient);
    result.insert(result.end(), {y, x.grad(), noise});
    return result;
  });
}

TEST(Remat, OnlyParametersRequireGradients) {
  expect_same([](Caller call) {
    torch::nn::Linear linear(6, 3);
    auto y = call(linear, torch::randn({4, 6}));
    EXPECT_TRUE(y.requires_grad());
    y.square().sum().backward();
    return Tensors{y, linear->weight.grad(), linear->bias.grad()};
  });
}

TEST(Remat, RunsOncePerBackward) {
  int runs = 0;
  const auto w = leaf({3, 3});
  const auto fn = [&](const at::Tensor& x) {
    ++runs;
    return x.matmul(w).tanh();
  };
  const auto x = torch::randn({2, 3});
  const auto y = remat(fn, x);
  EXPECT_EQ(runs, 1);
  y.sum().backward({}, /*retain_graph=*/true);
  EXPECT_EQ(runs, 2);
  y.sum().backward();
  EXPECT_EQ(runs, 3);
  EXPECT_EQ(message([&] { y.sum().backward(); }),
            "[remat] backward: the graph was run before and is freed; give the first backward() "
            "retain_graph = true");
  EXPECT_EQ(runs, 3);
}

TEST(Remat, WithoutGradientsIsAPlainCall) {
  int runs = 0;
  const auto fn = [&](const at::Tensor& x) {
    ++runs;
    return x.exp();
  };
  EXPECT_FALSE(remat(fn, torch::randn({3})).requires_grad());
  {
    const torch::NoGradGuard no_grad;
    EXPECT_FALSE(remat(fn, leaf({3})).requires_grad());
  }
  EXPECT_FALSE(
      remat([&](const at::Tensor& x) { return fn(x.detach()); }, leaf({3})).requires_grad());
  EXPECT_EQ(runs, 3);
}

// Through remat the activation is gone after forward; without, it is not.
TEST(Remat, KeepsNoActivation) {
  for (const bool with : {true, false}) {
    std::vector<c10::weak_intrusive_ptr<at::TensorImpl>> inner;
    const auto w = leaf({8, 8});
    const auto fn = [&](const at::Tensor& x) {
      const auto hidden = x.matmul(w).tanh();
      inner.emplace_back(hidden.getIntrusivePtr());
      return hidden.matmul(w).tanh().view({16});
    };
    const auto y = Caller{with}(fn, leaf({2, 8}));
    ASSERT_EQ(inner.size(), 1u);
    EXPECT_EQ(inner[0].expired(), with);
    y.sum().backward();
    for (const auto& pointer : inner) EXPECT_TRUE(pointer.expired());
  }
}

TEST(Remat, IntegerAndUndefinedInputs) {
  expect_same([](Caller call) {
    torch::nn::Embedding table(10, 4);
    const auto fn = [=](const at::Tensor& tokens, const at::Tensor& x,
                        const at::Tensor& bias) mutable {
      const auto y = table(tokens) * x;
      return bias.defined() ? y + bias : y;
    };
    const auto x = leaf({3, 4});
    const auto y = call(fn, torch::tensor({1, 7, 1}), x, at::Tensor());
    y.pow(3).sum().backward();
    return Tensors{y, table->weight.grad(), x.grad()};
  });
}

TEST(Remat, ManyResults) {
  expect_same([](Caller call) {
    const auto x = leaf({5, 4}), w = leaf({4, 4});
    const auto fn = [=](const at::Tensor& in) {
      const auto h = in.matmul(w).tanh();
      const auto [values, places] = h.max(1);
      return std::tuple(h, std::pair(values, places), Tensors{h.sin(), h.detach(), h.cos()});
    };
    const auto [h, top, others] = call(fn, x);
    const auto& [values, places] = top;
    EXPECT_FALSE(places.requires_grad());
    EXPECT_FALSE(others[1].requires_grad());
    // others[2] gets no gradient.
    (values.sum() + others[0].mul(h).sum()).backward();
    return Tensors{h, values, places, others[0], others[1], others[2], x.grad(), w.grad()};
  });
}

TEST(Remat, ResultsThatAreInputsOrViewsOfThem) {
  expect_same([](Caller call) {
    const auto x = leaf({4, 3}), w = leaf({3, 3});
    const auto h = x * 2;
    const auto fn = [=](const at::Tensor& in) {
      return std::array{in, in.t(), in.matmul(w).exp(), w};
    };
    auto [same, turned, y, weight] = call(fn, h);
    EXPECT_TRUE(same.is_same(h));
    EXPECT_TRUE(weight.is_same(w));
    const auto partial = (turned.t() * y + same).sum() + weight.sum();
    partial.backward();
    return Tensors{same, turned, y, x.grad(), w.grad()};
  });
}

TEST(Remat, WritingToAViewOfAnInputIsSeen) {
  expect_same([](Caller call) {
    const auto x = leaf({4, 3});
    auto h = x * 2;
    auto row = call([](const at::Tensor& in) { return in[1]; }, h);
    row.mul_(5);
    h.pow(2).sum().backward();
    return Tensors{h, x.grad()};
  });
}

TEST(Remat, TheSameResultTwiceAndWrittenTo) {
  expect_same([](Caller call) {
    const auto x = leaf({4});
    auto [a, b] = call(
        [](const at::Tensor& in) {
          const auto y = in.exp();
          return std::pair(y * 2, y * 3);
        },
        x);
    a.mul_(b);
    const auto [c, d] = call(
        [](const at::Tensor& in) {
          const auto y = in.sin();
          return std::pair(y, y);
        },
        a);
    EXPECT_TRUE(c.is_same(d));
    (c * d.cos()).sum().backward();
    return Tensors{a, b, c, x.grad()};
  });
}

TEST(Remat, UsedTwice) {
  expect_same([](Caller call) {
    auto block = dropout_mlp();
    const auto fn = [=](const at::Tensor& in) mutable { return block->forward(in); };
    const auto x = leaf({4, 6});
    const auto y = call(fn, call(fn, x));
    (y * y.sin()).sum().backward();
    Tensors result = gradients_of(block->parameters());
    result.push_back(x.grad());
    return result;
  });
}

TEST(Remat, Nested) {
  int inner_runs = 0;
  const auto program = [&](Caller call) {
    auto inner = dropout_mlp(), outer = dropout_mlp();
    const auto fn = [=, &inner_runs](const at::Tensor& in) mutable {
      const auto y = call(
          [=, &inner_runs](const at::Tensor& z) mutable {
            ++inner_runs;
            return inner->forward(z).tanh();
          },
          outer->forward(in));
      return outer->forward(y) + in;
    };
    const auto x = leaf({4, 6});
    inner_runs = 0;
    const auto y = call(fn, x);
    y.square().sum().backward();
    EXPECT_EQ(inner_runs, call.with ? 3 : 1);
    Tensors result = gradients_of(inner->parameters());
    for (const auto& gradient : gradients_of(outer->parameters())) result.push_back(gradient);
    result.insert(result.end(), {y, x.grad()});
    return result;
  };
  expect_same(program);
}

TEST(Remat, ClosesOverAnActivation) {
  expect_same([](Caller call) {
    const auto x = leaf({4});
    const auto h = x.exp();
    const auto y = call([=](const at::Tensor& in) { return (in * h).sin(); }, x * 3);
    (y.sum() + h.prod()).backward();
    return Tensors{y, x.grad()};
  });
}

TEST(Remat, HooksSeeAGradientOnce) {
  expect_same([](Caller call) {
    const auto x = leaf({4}), w = leaf({4});
    const auto h = x * 1;
    int seen = 0;
    for (const auto& tensor : {x, w, h}) {
      tensor.register_hook([&seen](const at::Tensor& gradient) {
        ++seen;
        return gradient * 2;
      });
    }
    h.retain_grad();
    const auto y = call([=](const at::Tensor& in) { return (in * w).sin() + in * w; }, h);
    (y + w).sum().backward();
    EXPECT_EQ(seen, 3);
    return Tensors{x.grad(), w.grad(), h.grad()};
  });
}

TEST(Remat, GradOfSomeTensors) {
  expect_same([](Caller call) {
    const auto x = leaf({4}), w = leaf({4}), v = leaf({4});
    const auto y = call([=](const at::Tensor& in) { return (in * w).sin() + v * in; }, x);
    Tensors result;
    for (const auto& of : {x, w, v}) {
      result.push_back(torch::autograd::grad({y.sum()}, {of}, {}, /*retain_graph=*/true)[0]);
    }
    for (const auto& tensor : {x, w, v}) EXPECT_FALSE(tensor.grad().defined());
    return result;
  });
}

// Sums of many parts, so not to the bit.
TEST(Remat, SecondDerivatives) {
  const auto program = [](Caller call) {
    const auto options = torch::TensorOptions(torch::kDouble).requires_grad(true);
    const auto x = torch::rand({4}, options), w = torch::rand({4}, options);
    const auto inner = [=](const at::Tensor& in) { return (in * w).sin() * in.exp(); };
    const auto fn = [=](const at::Tensor& in) {
      return torch::dropout(call(inner, in) + call(inner, w * 2), 0.3, true);
    };
    const auto y = call(fn, x * 2) + w;
    auto gradients =
        torch::autograd::grad({y.pow(2).sum()}, {x, w}, {}, true, /*create_graph=*/true);
    const auto second =
        torch::autograd::grad({gradients[0].pow(2).sum() + gradients[1].sin().sum()}, {x, w}, {},
                              true, /*create_graph=*/true);
    second[0].prod().backward();
    return Tensors{y, gradients[0], gradients[1], second[0], second[1], x.grad(), w.grad()};
  };
  expect_same(program, 1e-12);
}

// The inputs of such a derivative are leaves that fn makes.
TEST(Remat, FnMayDifferentiate) {
  expect_same([](Caller call) {
    torch::nn::Linear linear(4, 4);
    std::vector<c10::weak_intrusive_ptr<at::TensorImpl>> leaves;
    const auto fn = [=, &leaves](const at::Tensor& in) mutable {
      const auto z = in.detach().requires_grad_();
      leaves.emplace_back(z.getIntrusivePtr());
      const auto energy = linear(z).tanh().sum();
      return torch::autograd::grad({energy}, {z}, {}, true, /*create_graph=*/true)[0] * in;
    };
    const auto x = leaf({3, 4});
    const auto y = call(fn, x);
    EXPECT_EQ(leaves.at(0).expired(), call.with);
    y.square().sum().backward();
    return Tensors{y, linear->weight.grad(), x.grad()};
  });
}

TEST(Remat, GradientsAddUpOverBatches) {
  expect_same([](Caller call) {
    auto block = dropout_mlp();
    const auto fn = [=](const at::Tensor& in) mutable { return block->forward(in); };
    for (int i = 0; i < 3; ++i) call(fn, torch::randn({2, 6})).square().mean().backward();
    return gradients_of(block->parameters());
  });
}

TEST(Remat, Autocast) {
  expect_same([](Caller call) {
    torch::nn::Linear linear(6, 6);
    const auto x = leaf({4, 6});
    at::autocast::set_autocast_enabled(at::kCPU, true);
    const auto fn = [=](const at::Tensor& in) mutable {
      return linear(linear(in).sin()).to(torch::kFloat);
    };
    const auto y = call(fn, x);
    at::autocast::set_autocast_enabled(at::kCPU, false);
    at::autocast::clear_cache();
    y.sum().backward();
    EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
    EXPECT_TRUE(at::autocast::is_autocast_cache_enabled());
    return Tensors{y, linear->weight.grad(), x.grad()};
  });
}

TEST(Remat, AnInputWrittenInPlaceIsAnError) {
  const auto x = leaf({4});
  auto h = x * 2;
  const auto y = remat([](const at::Tensor& in) { return in.exp(); }, h);
  h.add_(1);
  EXPECT_THAT(message([&] { y.sum().backward(); }), HasSubstr("modified by an inplace operation"));

  EXPECT_EQ(
      message([&] { remat([](const at::Tensor& in) { return in.add(0).add_(in).exp(); }, h); }),
      "");
  EXPECT_EQ(message([&] { remat([](at::Tensor in) { return in.mul_(2).exp(); }, h); }),
            "[remat] input 0: fn wrote it in place, and could not run again on what it was; write "
            "a clone");
}

TEST(Remat, AParameterWrittenInPlaceIsAnError) {
  torch::nn::Linear linear(2, 3);
  const auto version = linear->bias._version();
  const auto y = remat(linear, torch::randn({4, 2}));
  {
    const torch::NoGradGuard no_grad;
    linear->bias.add_(1);  // plain libtorch needs no bias in backward; another run of fn does
  }
  EXPECT_EQ(message([&] { y.sum().backward(); }),
            text("[remat] parameter of sizes [3]: was written in place since forward, version ",
                 version + 1, " vs ", version, "; change parameters after backward()"));
}

TEST(Remat, OtherResultsAreAnError) {
  const auto complaint = [](auto second) {
    int runs = 0;
    const auto x = leaf({4});
    const auto fn = [&](const at::Tensor& in) {
      return ++runs == 1 ? Tensors{in.exp()} : second(in);
    };
    const auto y = remat(fn, x).at(0);
    return message([&] { y.sum().backward(); });
  };
  const std::string remedy =
      "; let it depend on nothing that changes but its inputs and random numbers";
  EXPECT_EQ(complaint([](const at::Tensor&) { return Tensors(); }),
            "[remat] backward: fn gave fewer results than in forward" + remedy);
  EXPECT_EQ(complaint([](const at::Tensor& in) { return Tensors{in.detach()}; }),
            "[remat] backward: fn gave results of other origin than in forward" + remedy);
  EXPECT_EQ(complaint([](const at::Tensor& in) { return Tensors{in.exp().slice(0, 0, 2)}; }),
            "[remat] backward: fn gave results of other sizes or dtypes than in forward" + remedy);
  EXPECT_EQ(complaint([](const at::Tensor& in) { return Tensors{in.exp().to(torch::kDouble)}; }),
            "[remat] backward: fn gave results of other sizes or dtypes than in forward" + remedy);
  const auto other = leaf({4}).exp();
  EXPECT_EQ(complaint([&](const at::Tensor& in) { return Tensors{in.exp() * other}; }),
            "[remat] backward: fn used another tensor from outside than in forward" + remedy);
  const auto weight = leaf({4});
  EXPECT_EQ(complaint([&](const at::Tensor& in) { return Tensors{in.exp() * weight}; }),
            "[remat] backward: fn used another tensor from outside than in forward" + remedy);
}

TEST(Remat, WhatFnThrowsComesOutAndNothingElseChanges) {
  int runs = 0;
  const auto fn = [&](const at::Tensor& in) {
    const auto y = torch::dropout(in.exp(), 0.5, true);
    if (++runs > 1) fail({.op = "fn", .where = "", .what = "no", .remedy = ""});
    return y;
  };
  torch::manual_seed(3);
  const auto y = remat(fn, leaf({4}));
  EXPECT_EQ(message([&] { y.sum().backward(); }), "[fn] no");
  const auto next = torch::rand({2});
  EXPECT_TRUE(torch::GradMode::is_enabled());
  torch::manual_seed(3);
  torch::randn({4});
  torch::dropout(torch::zeros({4}), 0.5, true);
  EXPECT_TRUE(torch::equal(next, torch::rand({2})));
}

}  // namespace
}  // namespace meshtorch
