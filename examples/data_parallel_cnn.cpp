// SPDX-License-Identifier: Apache-2.0
//
// A convolutional network on handwritten digits, data parallel on 8 devices. Batch norm takes its
// statistics from the whole batch, dropout drops the same elements on every mesh, 8 divides no batch:
// none of it needs a line of code.
#include <iomanip>
#include <iostream>

#include <torch/torch.h>

#include <meshtorch/data/digits.h>
#include <meshtorch/data/files.h>
#include <meshtorch/meshtorch.h>
#include <meshtorch/models/cnn.h>

namespace mt = meshtorch;
using mt::P;

namespace {

constexpr int kEpochs = 8;
constexpr std::int64_t kBatch = 100;
constexpr double kWanted = 0.97;

double accuracy(mt::Cnn& model, const torch::Tensor& images, const torch::Tensor& labels) {
  torch::NoGradGuard no_grad;
  model->eval();
  const auto right = model->forward(images).argmax(1).eq(labels);
  model->train();
  return right.to(torch::kFloat).mean().item<double>();
}

int run() {
  mt::Runtime runtime({.devices = 8, .seed = 1});
  auto mesh = runtime.make_mesh({{"dp", 8}});
  const auto digits = mt::load_digits(mt::data_file("digits.csv"));

  mt::Cnn model;
  mt::replicate(*model, mesh);
  torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(3e-3));

  const auto test_images = mt::device_put(digits.test.images, {mesh, P("dp")});
  const auto test_labels = mt::device_put(digits.test.labels, {mesh, P("dp")});
  runtime.out() << digits.train.size() << " digits to train on, " << digits.test.size()
                << " held out:\n";
  mt::visualize_sharding(test_images);

  double held_out = 0;
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    const auto order = torch::randperm(digits.train.size());
    double loss_sum = 0;
    for (const auto& index : order.split(kBatch)) {
      const auto images =
          mt::device_put(digits.train.images.index_select(0, index), {mesh, P("dp")});
      const auto labels =
          mt::device_put(digits.train.labels.index_select(0, index), {mesh, P("dp")});
      optimizer.zero_grad();
      auto loss = torch::nn::functional::cross_entropy(model->forward(images), labels);
      loss.backward();
      optimizer.step();
      loss_sum += loss.item<double>() * static_cast<double>(index.numel());
    }
    held_out = accuracy(model, test_images, test_labels);
    runtime.out() << "epoch " << epoch + 1 << std::fixed << std::setprecision(4) << "  loss "
                  << loss_sum / static_cast<double>(digits.train.size()) << "  held-out accuracy "
                  << held_out << std::endl;
  }
  const bool good = held_out > kWanted;
  runtime.out() << "ops without a rule: " << runtime.fallbacks().size() << "\n"
                << "held-out accuracy " << held_out << (good ? " is above " : " is NOT above ")
                << kWanted << "\n";
  return good ? 0 : 1;
}

}  // namespace

int main() try { return run(); } catch (const mt::Error& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
