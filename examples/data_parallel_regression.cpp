// SPDX-License-Identifier: Apache-2.0
//
// Data parallelism in four lines: make a mesh, replicate the model, shard the batch, train as if on
// one device. It fits y = 0.8 x^2 + 0.1 + noise and ends where plain libtorch ends.
//
//   data_parallel_regression [SVG]   where to write the picture (default: regression.svg)
#include <cmath>
#include <iostream>

#include <torch/torch.h>

#include <meshtorch/base/chart.h>
#include <meshtorch/meshtorch.h>
#include <meshtorch/models/mlp.h>

namespace mt = meshtorch;
using mt::P;

namespace {

constexpr int kPoints = 512, kSteps = 1000;
constexpr double kNoise = 0.05;

mt::Mlp make_model() {
  torch::manual_seed(1);
  return mt::Mlp(mt::MlpOptions{
      .in = 1, .hidden = 32, .out = 1, .layers = 3, .activation = mt::Activation::tanh});
}

// Knows nothing of meshes. Returns the last loss.
double train(mt::Mlp& model, const torch::Tensor& x, const torch::Tensor& y) {
  torch::optim::AdamW optimizer(model->parameters(),
                                torch::optim::AdamWOptions(1e-2).weight_decay(0));
  torch::optim::StepLR schedule(optimizer, 250, 0.3);
  torch::Tensor loss;
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    loss = torch::mse_loss(model->forward(x), y);
    loss.backward();
    optimizer.step();
    schedule.step();
  }
  return loss.item<double>();
}

std::vector<double> values(const torch::Tensor& x) {
  const auto flat = mt::full(x.detach()).to(torch::kDouble).contiguous();
  return {flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel()};
}

int run(const std::string& svg) {
  mt::Runtime runtime({.devices = 8});
  auto mesh = runtime.make_mesh({{"dp", 8}});

  torch::manual_seed(0);
  const auto x = torch::rand({kPoints, 1}) * 2 - 1;
  const auto noise = kNoise * torch::randn({kPoints, 1});
  const auto y = 0.8 * x.square() + 0.1 + noise;

  auto plain = make_model();
  const double plain_loss = train(plain, x, y);

  auto model = make_model();
  mt::replicate(*model, mesh);
  const auto sharded_x = mt::device_put(x, {mesh, P("dp")});
  const auto sharded_y = mt::device_put(y, {mesh, P("dp")});
  runtime.out() << "the batch:\n";
  mt::visualize_sharding(sharded_x);
  runtime.out() << "\na parameter:\n";
  mt::visualize_sharding(model->named_parameters()["layers.1.weight"]);

  runtime.ledger().clear();
  const double loss = train(model, sharded_x, sharded_y);
  runtime.out() << "\nwhat " << kSteps << " steps cost:\n" << runtime.ledger().to_string();
  runtime.out() << "\nits gradient:\n";
  mt::visualize_sharding(model->named_parameters()["layers.1.weight"].grad());

  const auto grid = torch::linspace(-1, 1, 201).unsqueeze(1);
  const auto fit = model->forward(mt::replicate(grid, mesh));
  if (runtime.process() == 0)
    mt::write_svg(
        {.title = "y = 0.8 x² + 0.1 + noise, fitted on 8 devices",
         .x_label = "x",
         .y_label = "y",
         .series = {{.name = "data", .x = values(x), .y = values(y), .mark = mt::Mark::points},
                    {.name = "fit", .x = values(grid), .y = values(fit)}}},
        svg);

  const double floor = noise.square().mean().item<double>();
  const double off = std::abs(loss / plain_loss - 1);
  const bool fits = loss < 1.05 * floor, equal = off < 1e-3;
  runtime.out() << "\nfinal loss, 8 devices:  " << loss
                << "\nfinal loss, libtorch:   " << plain_loss << "  (relative difference " << off
                << (equal ? ", ok)" : ", FAILED)") << "\nmean square of noise:   " << floor
                << (fits ? "  (reached, ok)" : "  (not reached, FAILED)")
                << "\npicture:                " << svg << "\n";
  return fits && equal ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) try {
  return run(argc > 1 ? argv[1] : "regression.svg");
} catch (const mt::Error& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
