// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/models/mlp.h>

#include <gtest/gtest.h>

#include <meshtorch/models/testing.h>

namespace meshtorch {
namespace {

TEST(Mlp, shapes) {
  for (const auto activation : {Activation::relu, Activation::gelu, Activation::tanh}) {
    Mlp model(MlpOptions{.in = 3, .hidden = 8, .out = 2, .layers = 4, .activation = activation});
    EXPECT_EQ(model->forward(torch::zeros({5, 3})).sizes().vec(), (Shape{5, 2}));
    EXPECT_EQ(model->forward(torch::zeros({2, 5, 3})).sizes().vec(), (Shape{2, 5, 2}));
    EXPECT_EQ(model->named_parameters()["layers.2.weight"].sizes().vec(), (Shape{8, 8}));
  }
}

TEST(Mlp, is_its_formula) {
  Mlp model(MlpOptions{.in = 3, .hidden = 8, .out = 2, .activation = Activation::gelu});
  const auto p = model->named_parameters();
  const auto x = torch::randn({5, 3});
  const auto hidden =
      torch::gelu(torch::linear(x, p["layers.0.weight"], p["layers.0.bias"]), "tanh");
  EXPECT_TRUE(torch::allclose(model->forward(x),
                              torch::linear(hidden, p["layers.1.weight"], p["layers.1.bias"])));
}

TEST(Mlp, fits_a_parabola) {
  torch::set_num_threads(1);  // too small to share
  torch::manual_seed(1);
  Mlp model;
  torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(1e-2));
  const auto x = torch::linspace(-1, 1, 128).unsqueeze(1), y = 0.8 * x * x + 0.1;
  double loss = 1;
  for (int step = 0; step < 300; ++step) {
    optimizer.zero_grad();
    const auto error = torch::mse_loss(model->forward(x), y);
    error.backward();
    optimizer.step();
    loss = error.item<double>();
  }
  EXPECT_LT(loss, 1e-3);
}

TEST(Mlp, table_alternates) {
  Mlp model(MlpOptions{.in = 3, .hidden = 8, .out = 2, .layers = 12});
  const Mesh mesh({{"dp", 2}, {"tp", 2}});
  const auto specs = specs_of(mlp_sharding(), mesh, *model);
  EXPECT_EQ(specs.size(), 24u);
  for (const char* even : {"0", "2", "10"}) {
    EXPECT_EQ(specs.at(text("layers.", even, ".weight")), "P(tp)");
    EXPECT_EQ(specs.at(text("layers.", even, ".bias")), "P(tp)");
  }
  for (const char* odd : {"1", "3", "11"}) {
    EXPECT_EQ(specs.at(text("layers.", odd, ".weight")), "P(-, tp)");
    EXPECT_EQ(specs.at(text("layers.", odd, ".bias")), "P()");
  }
}

TEST(Mlp, errors) {
  EXPECT_EQ(message([] { Mlp(MlpOptions{.in = 0}); }), "[Mlp] in: 0 is not a size; use at least 1");
  EXPECT_EQ(message([] { Mlp(MlpOptions{.hidden = -2}); }),
            "[Mlp] hidden: -2 is not a size; use at least 1");
  EXPECT_EQ(message([] { Mlp(MlpOptions{.layers = 0}); }),
            "[Mlp] layers: 0 is not a size; use at least 1");
}

}  // namespace
}  // namespace meshtorch
