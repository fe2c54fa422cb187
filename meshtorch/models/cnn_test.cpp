// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/models/cnn.h>

#include <gtest/gtest.h>

#include <meshtorch/models/testing.h>

namespace meshtorch {
namespace {

TEST(Cnn, shapes) {
  Cnn model(CnnOptions{.classes = 7});
  EXPECT_EQ(model->forward(torch::zeros({5, 1, 8, 8})).sizes().vec(), (Shape{5, 7}));
  model->eval();
  EXPECT_EQ(model->forward(torch::zeros({1, 1, 8, 8})).sizes().vec(), (Shape{1, 7}));
}

TEST(Cnn, tells_noisy_patterns_apart) {
  torch::set_num_threads(1);  // too small to share
  torch::manual_seed(1);
  Cnn model(CnnOptions{.channels = 8, .dropout = 0.25});
  const auto patterns = torch::rand({10, 1, 8, 8});
  const auto draw = [&](std::int64_t n) {
    const auto labels = torch::randint(10, {n}, torch::kLong);
    return std::pair(patterns.index_select(0, labels) + 0.3 * torch::randn({n, 1, 8, 8}), labels);
  };
  torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(3e-3));
  for (int step = 0; step < 120; ++step) {
    const auto [images, labels] = draw(64);
    optimizer.zero_grad();
    torch::cross_entropy_loss(model->forward(images), labels).backward();
    optimizer.step();
  }
  model->eval();
  const auto [images, labels] = draw(512);
  const auto right = model->forward(images).argmax(1).eq(labels).to(torch::kDouble).mean();
  EXPECT_GT(right.item<double>(), 0.95);
}

TEST(Cnn, table_covers_every_leaf) {
  Cnn model;
  const Mesh mesh({{"dp", 8}});
  const auto specs = specs_of(cnn_sharding(), mesh, *model);
  EXPECT_EQ(specs.size(), 14u);
  for (const auto& [path, spec] : specs) EXPECT_EQ(spec, "P()") << path;
}

TEST(Cnn, errors) {
  EXPECT_EQ(message([] { Cnn(CnnOptions{.classes = 0}); }),
            "[Cnn] classes: 0 is not a size; use at least 1");
  EXPECT_EQ(message([] { Cnn(CnnOptions{.channels = 0}); }),
            "[Cnn] channels: 0 is not a size; use at least 1");
  EXPECT_EQ(message([] { Cnn(CnnOptions{.dropout = 1.0}); }),
            "[Cnn] dropout: 1 is out of range; use 0 <= dropout < 1");
  EXPECT_EQ(message([] {
              Cnn()->forward(torch::zeros({5, 64}));
            }),
            "[Cnn] x: shape (5, 64), expected (N, 1, 8, 8); view the images so");
}

}  // namespace
}  // namespace meshtorch
