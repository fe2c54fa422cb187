// SPDX-License-Identifier: Apache-2.0
//
// Zero with a precision policy: master weights, fp32 sums of bf16 gradients, the dtype on the wire, loss
// scaling. In every stage.
#include "compare.h"

#include <cmath>

#include <meshtorch/models/gpt.h>
#include <meshtorch/train/precision.h>

namespace mt = meshtorch;
namespace nn = torch::nn;
namespace optim = torch::optim;
using mt::P;
using mt::Reduce;

namespace {

mt::ZeroOptions mixed(int stage, const std::string& policy) {
  return {.stage = stage, .precision = mt::Precision::parse(policy)};
}

const std::string kBf16 = "params=float32,compute=bfloat16,output=float32";

class PrecisionStages : public testing::TestWithParam<int> {
 protected:
  int stage() const { return GetParam(); }

  mt::Runtime runtime{{.devices = 8}};
  mt::Mesh mesh = runtime.make_mesh({{"dp", 4}, {"tp", 2}});

  at::Tensor parameter(const at::Tensor& value) const {
    return mt::device_put(value, {mesh, P()}).requires_grad_();
  }
  at::Tensor rows(const at::Tensor& x) const { return mt::device_put(x, {mesh, P("dp")}); }
  double reduced_bytes() {
    return static_cast<double>(runtime.ledger().bytes(
        [](const auto& entry) { return entry.op == "Zero::reduce_gradients"; }));
  }
};

INSTANTIATE_TEST_SUITE_P(Stages, PrecisionStages, testing::Values(0, 1, 2, 3),
                         [](const auto& info) { return "stage" + std::to_string(info.param); });

// In bfloat16 256 + 1 is 256.
TEST_P(PrecisionStages, SumsOfMicrobatchesAreExact) {
  for (const Reduce reduce : {Reduce::once, Reduce::each}) {
    auto weight = parameter(torch::zeros({8}));
    auto options = mixed(stage(), kBf16);
    options.reduce = reduce;
    mt::Zero<optim::SGD> zero({weight}, options, optim::SGDOptions(1.0));
    EXPECT_EQ(weight.scalar_type(), torch::kBFloat16);
    for (const double value : {256.0, 1.0, -256.0}) {
      auto x = torch::zeros({4, 8}, torch::kBFloat16);
      x[1].fill_(value);
      (rows(x) * weight).sum().backward();
    }
    zero.step();
    EXPECT_TRUE(torch::equal(mt::full(zero.shards()[0].detach()), torch::full({8}, -1.0)));
    EXPECT_EQ(zero.shards()[0].scalar_type(), torch::kFloat);
  }
}

// Steps far below bfloat16's resolution of 1 add up in the master weights.
TEST_P(PrecisionStages, MasterWeightsKeepSmallSteps) {
  auto weight = parameter(torch::ones({8}));
  mt::Zero<optim::SGD> zero({weight}, mixed(stage(), kBf16), optim::SGDOptions(1.0 / 4096));
  for (int step = 0; step < 64; ++step) {
    (rows(torch::ones({4, 8}, torch::kBFloat16)) * weight).sum().backward();
    zero.step();
    zero.zero_grad();
  }
  EXPECT_TRUE(
      torch::equal(mt::full(zero.shards()[0].detach()), torch::full({8}, 1 - 64 * 4.0 / 4096)));
  EXPECT_TRUE(torch::equal(mt::full(weight.detach()),
                           torch::full({8}, 1 - 64 * 4.0 / 4096, torch::kBFloat16)));
}

// Weights that come in bfloat16 get masters too.
TEST_P(PrecisionStages, MastersOfWeightsThatAreBfloat16) {
  auto weight = parameter(torch::ones({8}, torch::kBFloat16));
  mt::Zero<optim::SGD> zero({weight}, mixed(stage(), kBf16), optim::SGDOptions(1.0));
  EXPECT_EQ(weight.scalar_type(), torch::kBFloat16);
  EXPECT_EQ(zero.shards()[0].scalar_type(), torch::kFloat);
}

// cases.md 24 and 26: the sum is in float32 unless asked otherwise, over every axis alike.
TEST_P(PrecisionStages, OneDtypeOnTheWire) {
  const auto bytes = [&](const std::string& policy) {
    auto weight = parameter(torch::zeros({8, 16}));
    mt::Zero<optim::SGD> zero({weight}, mixed(stage(), policy), optim::SGDOptions(1.0));
    runtime.ledger().clear();
    auto x =
        mt::device_put(torch::ones({8, 16}, torch::kBFloat16), {mesh, P(mt::axes("dp", "tp"))});
    x.matmul(weight.t()).sum().backward();  // unreduced over dp and tp
    zero.step();
    return reduced_bytes();
  };
  const double whole = bytes(kBf16);
  const double elements = 8 * 16;
  // Over dp to a quarter (or all of it), over tp all-reduced.
  const double least =
      stage() == 0 ? 2 * 7.0 / 8 * 4 * elements : (3.0 / 4 + 2 * 1.0 / 2 / 4) * 4 * elements;
  EXPECT_EQ(whole, least) << runtime.ledger().to_string();
  EXPECT_EQ(bytes(kBf16 + ",reduce=bfloat16"), whole / 2) << runtime.ledger().to_string();
}

TEST_P(PrecisionStages, TheParametersGoOverTheWireInTheirOwnDtype) {
  auto weight = parameter(torch::zeros({8, 16}));
  mt::Zero<optim::SGD> zero({weight}, mixed(stage(), kBf16), optim::SGDOptions(1.0));
  runtime.ledger().clear();
  auto x = rows(torch::ones({8, 16}, torch::kBFloat16)).requires_grad_();
  x.matmul(weight.t()).sum().backward();
  zero.step();
  const std::int64_t gathered = runtime.ledger().bytes(
      [](const auto& entry) { return entry.op == "Zero::gather_parameters"; });
  const std::int64_t once = 8 * 16 * 2 * 3 / 4;
  EXPECT_EQ(gathered, stage() == 0   ? 0
                      : stage() == 3 ? 2 * once
                                     : once)
      << runtime.ledger().to_string();
}

// cases.md 28.
TEST_P(PrecisionStages, GptLosesNothingInBfloat16) {
  const mt::GptOptions options{.vocabulary = 16, .length = 8, .width = 16, .layers = 2, .heads = 2};
  const auto tokens = (torch::arange(16).view({16, 1}) + torch::arange(9)) % 16;
  const auto train = [&](const std::string& policy) {
    torch::manual_seed(7);
    mt::Gpt model(options);
    mt::shard(*model, mesh, mt::gpt_sharding());
    const auto precision = mt::Precision::parse(policy);
    mt::Zero<optim::AdamW> zero(model->parameters(), mixed(stage(), policy),
                                optim::AdamWOptions(3e-3));
    double last = 0;
    for (int step = 0; step < 30; ++step) {
      last = 0;
      for (const auto& micro :
           mt::microbatches({tokens.slice(1, 0, 8).contiguous(), tokens.slice(1, 1).contiguous()},
                            2, {mesh, P("dp")})) {
        const auto logits = precision.cast_to_output(model->forward(micro.inputs));
        auto loss = torch::cross_entropy_loss(logits.flatten(0, 1), micro.targets.flatten()) *
                    micro.weight();
        loss.backward();
        last += loss.item<double>();
      }
      zero.step();
      zero.zero_grad();
    }
    return last;
  };
  const double exact = train("float32");
  EXPECT_LT(exact, 2.0);  // it learned something to lose
  EXPECT_NEAR(train(kBf16) / exact, 1, 0.02);
}

// Statistics of a bfloat16 batch are sums in float, in training and evaluation.
TEST_P(PrecisionStages, BatchNormMixesTypes) {
  torch::manual_seed(3);
  nn::Sequential dense(nn::Linear(8, 8), nn::BatchNorm1d(8));
  nn::Sequential net(nn::Linear(8, 8), nn::BatchNorm1d(8));
  {
    torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < dense->parameters().size(); ++i)
      net->parameters()[i].copy_(dense->parameters()[i]);
  }
  mt::replicate(*net, mesh);
  mt::Zero<optim::SGD> zero(net->parameters(), mixed(stage(), kBf16), optim::SGDOptions(0.1));
  optim::SGD plain(dense->parameters(), optim::SGDOptions(0.1));
  for (const bool training : {true, false}) {
    dense->train(training);
    net->train(training);
    const auto x = torch::randn({64, 8}) + 4;
    const auto expected = dense->forward(x);
    const auto got = net->forward(rows(x.to(torch::kBFloat16)));
    EXPECT_EQ(got.scalar_type(), torch::kBFloat16);
    // Inputs of about 4 have steps of 1/32 in bfloat16, and are divided by what is below 1.
    mt::expect_close(got.to(torch::kFloat), expected, "result", 0.03, 0.08);
    (expected * x).mean().backward();
    (got * rows(x.to(torch::kBFloat16))).mean().backward();
    plain.step();
    plain.zero_grad();
    zero.step();
    zero.zero_grad();
  }
  for (const auto& item : dense->named_buffers())
    mt::expect_close(net->named_buffers()[item.key()], item.value(), item.key(), 0.01, 0.01);
  for (std::size_t i = 0; i < zero.shards().size(); ++i)
    mt::expect_close(zero.shards()[i].detach(), dense->parameters()[i], "master", 0.03, 0.01);
}

// cases.md 48.
TEST_P(PrecisionStages, BuffersKeepTheirDtype) {
  nn::BatchNorm1d norm(8);
  mt::replicate(*norm, mesh);
  mt::Zero<optim::SGD> zero(norm->parameters(), mixed(stage(), kBf16), optim::SGDOptions(1.0));
  EXPECT_EQ(norm->weight.scalar_type(), torch::kBFloat16);
  EXPECT_EQ(norm->running_mean.scalar_type(), torch::kFloat);
  EXPECT_EQ(norm->num_batches_tracked.scalar_type(), torch::kLong);
}

TEST_P(PrecisionStages, LossScaleOfFloat16) {
  const std::string policy = "params=float32,compute=float16";
  auto weight = parameter(torch::zeros({8}));
  mt::Zero<optim::SGD> zero({weight}, mixed(stage(), policy), optim::SGDOptions(1.0));
  EXPECT_EQ(zero.status().loss_scale, 65536);
  // A gradient of 2^-26: half of float16's smallest number.
  const double small = std::ldexp(1.0, -26);
  const auto backward = [&](double scale) {
    auto x = torch::ones({4, 8}, torch::kHalf);
    ((rows(x) * weight).sum().to(torch::kFloat) * (small * scale)).backward();
  };
  backward(zero.status().loss_scale);
  zero.step();
  zero.zero_grad();
  EXPECT_FALSE(zero.status().skipped);
  EXPECT_TRUE(torch::equal(mt::full(zero.shards()[0].detach()), torch::full({8}, -4 * small)));
  EXPECT_NEAR(*zero.gradient_norm(), 4 * small * std::sqrt(8.0), 1e-12);

  backward(1e13);  // infinite in float16
  zero.step();
  EXPECT_TRUE(zero.status().skipped);
  EXPECT_EQ(zero.status().loss_scale, 32768);
  EXPECT_TRUE(torch::equal(mt::full(zero.shards()[0].detach()), torch::full({8}, -4 * small)));
}

TEST(PrecisionOfZero, ItsLossScaleIsOptionsAndState) {
  mt::Runtime runtime({.devices = 8});
  const auto mesh = runtime.make_mesh({{"dp", 8}});
  auto weight = mt::device_put(torch::zeros({8}), {mesh, P()}).requires_grad_();
  auto options = mixed(1, "params=float32,compute=float16");
  options.loss_scale = mt::LossScaleOptions{.init = 8};
  {
    mt::Zero<optim::SGD> zero({weight}, options, optim::SGDOptions(1.0));
    EXPECT_EQ(zero.status().loss_scale, 8);
    EXPECT_EQ(zero.engine().loss_scale()->state().scale, 8);
  }
  options.precision = mt::Precision::parse(kBf16);
  EXPECT_EQ(
      mt::message_of([&] { mt::Zero<optim::SGD> zero({weight}, options, optim::SGDOptions(1.0)); }),
      "[Zero] loss_scale: is for a precision that computes in float16; leave it out");
  options.loss_scale.reset();
  options.precision->compute = torch::kInt;
  EXPECT_EQ(
      mt::message_of([&] { mt::Zero<optim::SGD> zero({weight}, options, optim::SGDOptions(1.0)); }),
      "[Zero] precision: got Int, expected floating point; see Precision::parse");
}

TEST(PrecisionOfZero, ScalesOnlyFloat16) {
  mt::Runtime runtime({.devices = 8});
  const auto mesh = runtime.make_mesh({{"dp", 8}});
  auto weight = mt::device_put(torch::zeros({8}), {mesh, P()}).requires_grad_();
  mt::Zero<optim::SGD> zero({weight}, mixed(1, kBf16), optim::SGDOptions(1.0));
  EXPECT_EQ(zero.status().loss_scale, 1);
}

}  // namespace
