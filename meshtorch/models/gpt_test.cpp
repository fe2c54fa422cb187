// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/models/gpt.h>

#include <cmath>

#include <gtest/gtest.h>

#include <meshtorch/models/testing.h>

namespace meshtorch {
namespace {

constexpr GptOptions kSmall{.vocabulary = 50, .length = 16, .width = 32, .layers = 2, .heads = 4};

torch::Tensor random_tokens(std::int64_t batch, std::int64_t length) {
  return torch::randint(kSmall.vocabulary, {batch, length}, torch::kLong);
}

TEST(Gpt, shapes_and_initial_loss) {
  torch::manual_seed(1);
  Gpt model(kSmall);
  const auto inputs = random_tokens(8, 16), targets = random_tokens(8, 16);
  EXPECT_EQ(model->forward(inputs).sizes().vec(), (Shape{8, 16, 50}));
  EXPECT_EQ(model->forward(inputs.narrow(1, 0, 3)).sizes().vec(), (Shape{8, 3, 50}));
  EXPECT_NEAR(model->loss(inputs, targets).item<double>(), std::log(50.0), 0.1);
}

TEST(Gpt, parameter_count_is_the_modules) {
  for (const bool tied : {false, true}) {
    for (auto options : {kSmall, GptOptions{.layers = 1}}) {
      options.tied = tied;
      std::int64_t count = 0;
      for (const auto& parameter : Gpt(options)->parameters()) count += parameter.numel();
      EXPECT_EQ(parameter_count(options), count);
    }
  }
}

TEST(Gpt, initialisation) {
  torch::manual_seed(2);
  Gpt model(GptOptions{.layers = 2});
  const auto p = model->named_parameters();
  const auto std = [&](const char* path) { return p[path].std().item<double>(); };
  EXPECT_NEAR(std("tokens.weight"), 0.02, 5e-4);
  EXPECT_NEAR(std("positions.weight"), 0.02, 5e-4);
  EXPECT_NEAR(std("layers.1.attention.k.weight"), 0.02, 5e-4);
  EXPECT_NEAR(std("layers.1.attention.out.weight"), 0.01, 5e-4);
  EXPECT_NEAR(std("layers.0.mlp.up.weight"), 0.02, 5e-4);
  EXPECT_NEAR(std("layers.0.mlp.down.weight"), 0.01, 5e-4);
  EXPECT_NEAR(std("head.weight"), 0.02, 5e-4);
  EXPECT_EQ(p["layers.0.mlp.down.bias"].abs().max().item<double>(), 0.0);
}

TEST(Gpt, later_tokens_do_not_change_earlier_logits) {
  Gpt model(kSmall);
  const auto tokens = random_tokens(2, 16);
  auto changed = tokens.clone();
  changed.narrow(1, 9, 7).fill_(3);
  const auto a = model->forward(tokens), b = model->forward(changed);
  EXPECT_TRUE(torch::allclose(a.narrow(1, 0, 9), b.narrow(1, 0, 9), 1e-5, 1e-6));
  EXPECT_FALSE(torch::allclose(a.narrow(1, 9, 7), b.narrow(1, 9, 7), 1e-5, 1e-6));
}

TEST(Gpt, ignored_targets_do_not_count) {
  Gpt model(kSmall);
  const auto inputs = random_tokens(4, 16);
  auto targets = random_tokens(4, 16);
  const auto half = model->loss(inputs.narrow(0, 0, 2), targets.narrow(0, 0, 2));
  targets.narrow(0, 2, 2).fill_(-100);
  EXPECT_NEAR(model->loss(inputs, targets).item<double>(), half.item<double>(), 1e-5);
}

TEST(Gpt, dropout_only_in_training) {
  auto options = kSmall;
  options.dropout = 0.5;
  Gpt model(options);
  const auto tokens = random_tokens(2, 16);
  EXPECT_FALSE(model->forward(tokens).equal(model->forward(tokens)));
  model->eval();
  EXPECT_TRUE(model->forward(tokens).equal(model->forward(tokens)));
}

TEST(Gpt, learns_a_sequence) {
  torch::set_num_threads(1);  // too small to share
  for (const bool tied : {false, true}) {
    torch::manual_seed(3);
    auto options = kSmall;
    options.tied = tied;
    Gpt model(options);
    const auto text = random_tokens(1, 17);
    const auto inputs = text.narrow(1, 0, 16), targets = text.narrow(1, 1, 16);
    torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(1e-2));
    for (int step = 0; step < 60; ++step) {
      optimizer.zero_grad();
      model->loss(inputs, targets).backward();
      optimizer.step();
    }
    EXPECT_LT(model->loss(inputs, targets).item<double>(), 0.1) << tied;
  }
}

TEST(Gpt, table_covers_every_leaf) {
  const Mesh mesh({{"dp", 4}, {"tp", 2}});
  Gpt model(kSmall);
  const auto specs = specs_of(gpt_sharding(), mesh, *model);
  EXPECT_EQ(specs.size(), model->parameters().size());
  const std::map<std::string, std::string> expected{
      {"tokens.weight", "P(tp)"},
      {"positions.weight", "P()"},
      {"layers.1.norm1.weight", "P()"},
      {"layers.1.norm1.bias", "P()"},
      {"layers.1.attention.q.weight", "P(tp)"},
      {"layers.1.attention.q.bias", "P(tp)"},
      {"layers.1.attention.k.weight", "P(tp)"},
      {"layers.1.attention.k.bias", "P(tp)"},
      {"layers.1.attention.v.weight", "P(tp)"},
      {"layers.1.attention.v.bias", "P(tp)"},
      {"layers.1.attention.out.weight", "P(-, tp)"},
      {"layers.1.attention.out.bias", "P()"},
      {"layers.1.norm2.weight", "P()"},
      {"layers.1.norm2.bias", "P()"},
      {"layers.1.mlp.up.weight", "P(tp)"},
      {"layers.1.mlp.up.bias", "P(tp)"},
      {"layers.1.mlp.down.weight", "P(-, tp)"},
      {"layers.1.mlp.down.bias", "P()"},
      {"norm.weight", "P()"},
      {"norm.bias", "P()"},
      {"head.weight", "P(tp)"},
  };
  for (const auto& [path, spec] : expected) EXPECT_EQ(specs.at(path), spec) << path;
  EXPECT_EQ(specs.size(), expected.size() + 16);  // and the other layer

  auto options = kSmall;
  options.tied = true;
  EXPECT_EQ(specs_of(gpt_sharding("dp"), mesh, *Gpt(options)).at("tokens.weight"), "P(dp)");
  EXPECT_TRUE(gpt_sharding().match(mesh, leaves_of(*model)).unused_rules.empty());
}

TEST(Gpt, errors) {
  EXPECT_EQ(message([] { Gpt(GptOptions{.heads = 7}); }),
            "[Gpt] heads: width 256 does not split into 7 heads; use a divisor of the width");
  EXPECT_EQ(message([] { Gpt(GptOptions{.layers = 0}); }),
            "[Gpt] layers: 0 is not a size; use at least 1");
  EXPECT_EQ(message([] { Gpt(GptOptions{.heads = 0}); }),
            "[Gpt] heads: 0 is not a size; use at least 1");
  EXPECT_EQ(message([] { Gpt(GptOptions{.vocabulary = -1}); }),
            "[Gpt] vocabulary: -1 is not a size; use at least 1");
  EXPECT_EQ(message([] { Gpt(GptOptions{.dropout = -0.5}); }),
            "[Gpt] dropout: -0.5 is out of range; use 0 <= dropout < 1");
  Gpt model(kSmall);
  EXPECT_EQ(
      message([&] { model->forward(random_tokens(1, 17)); }),
      "[Gpt] tokens: shape (1, 17), expected (batch, 1 to 16); cut the text to the model's length");
  EXPECT_EQ(message([&] { model->loss(random_tokens(2, 8), random_tokens(2, 9)); }),
            "[Gpt] targets: shape (2, 9), inputs are (2, 8); pass the inputs' next tokens");
}

TEST(Gpt, tensor_parallel_needs_whole_heads) {
  check_tensor_parallel(GptOptions{}, 8);
  check_tensor_parallel(GptOptions{}, 1);
  EXPECT_EQ(
      message([] { check_tensor_parallel(GptOptions{}, 3, "model"); }),
      "[Gpt] heads: 8 heads do not split over the 3 devices of axis model; use a divisor of 8 for "
      "model");
  EXPECT_EQ(message([] { check_tensor_parallel(GptOptions{}, 0); }),
            "[Gpt] axis tp: 0 devices; use at least 1");
}

}  // namespace
}  // namespace meshtorch
