// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "row.h"

namespace meshtorch::modules {
namespace {

// Slopes of the negative side lie in the module's interval.
void slopes_within(const Tensors& inputs, const Tensors& outputs) {
  const auto &x = inputs[0], &y = outputs[0];
  EXPECT_TRUE(y.masked_select(x >= 0).equal(x.masked_select(x >= 0)));
  const auto slopes = (y / x).masked_select(x < 0);
  EXPECT_TRUE(slopes.ge(0.1).logical_and(slopes.le(0.4)).all().item<bool>());
  EXPECT_GT(slopes.std().item<double>(), 0.02);
}

}  // namespace

Rows activations() {
  const auto x = real({B, 6, 5});
  return {
      row([] { return nn::ELU(); }, x),
      row([] { return nn::SELU(); }, x),
      row([] { return nn::CELU(nn::CELUOptions().alpha(0.7)); }, x),
      row([] { return nn::GELU(); }, x),
      row([] { return nn::GELU(nn::GELUOptions().approximate("tanh")); }, x).with("tanh"),
      row([] { return nn::SiLU(); }, x),
      row([] { return nn::Mish(); }, x),
      row([] { return nn::ReLU(); }, x),
      row([] { return nn::ReLU6(); }, x),
      row([] { return nn::LeakyReLU(nn::LeakyReLUOptions().negative_slope(0.2)); }, x),
      row([] { return nn::RReLU(nn::RReLUOptions().lower(0.1).upper(0.4)); }, x)
          .random(slopes_within),
      row([] { return nn::PReLU(); }, x),
      row([] { return nn::PReLU(nn::PReLUOptions().num_parameters(6)); }, x)
          .with("a slope a channel")
          .sharded("channels", {{"weight", P("tp")}}, {1}),
      row([] { return nn::Sigmoid(); }, x),
      row([] { return nn::LogSigmoid(); }, x),
      row([] { return nn::Tanh(); }, x),
      row([] { return nn::Tanhshrink(); }, x),
      row([] { return nn::Hardtanh(); }, x),
      row([] { return nn::Hardshrink(); }, x),
      row([] { return nn::Softshrink(); }, x),
      row([] { return nn::Softplus(); }, x),
      row([] { return nn::Softsign(); }, x),
      row([] { return nn::Threshold(0.1, 2.0); }, x),
      row([] { return nn::GLU(1); }, x).sharded("halves", {}, {1}).sharded("other dim", {}, {2}),
      row([] { return nn::Softmax(1); }, x).sharded("softmax dim", {}, {1}),
      row([] { return nn::Softmin(1); }, x).sharded("softmax dim", {}, {1}),
      row([] { return nn::LogSoftmax(1); }, x).sharded("softmax dim", {}, {1}),
      row([] { return nn::Softmax2d(); }, real({B, 4, 3, 2})).sharded("channels", {}, {1}),
  };
}

}  // namespace meshtorch::modules
