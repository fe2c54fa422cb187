// SPDX-License-Identifier: Apache-2.0
//
// A CNN under pmap: each device has images and dropout of its own; batch statistics are averaged.
#include <meshtorch/data/digits.h>
#include <meshtorch/data/files.h>
#include <meshtorch/meshtorch.h>
#include <meshtorch/models/cnn.h>

namespace mt = meshtorch;
using torch::Tensor;

int main() {
  mt::Runtime runtime({.devices = 8, .seed = 1});
  auto mesh = runtime.make_mesh({{"dp", 8}});
  mt::Cnn model;
  mt::replicate(*model, mesh);
  torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(3e-3));
  const mt::StateAxes state{
      {mt::Kind::parameter, mt::StateAxis::broadcast},    // nnx.StateAxes({nnx.Param: None,
      {mt::Kind::random_state, mt::StateAxis::split},     //                nnx.RngState: 0,
      {mt::Kind::batch_statistic, mt::StateAxis::mean}};  //                nnx.BatchStat: ...})
  auto loss_of = mt::pmap(  // nnx.pmap(in_axes=(state, 0, 0), out_axes=None, axis_name="dp")
      [](mt::Cnn& cnn, const Tensor& images, const Tensor& labels) {
        return mt::pmean(torch::nn::functional::cross_entropy(cnn->forward(images), labels), "dp");
      },
      mesh, "dp", {state, 0, 0}, std::nullopt);
  const auto digits = mt::load_digits(mt::data_file("digits.csv"));
  Tensor loss;
  for (int step = 0; step < 120; ++step) {
    const auto rows = torch::randint(digits.train.size(), {96});
    optimizer.zero_grad();
    loss = loss_of(model, digits.train.images.index_select(0, rows).view({8, 12, 1, 8, 8}),
                   digits.train.labels.index_select(0, rows).view({8, 12}));
    loss.backward();
    optimizer.step();
  }
  runtime.out() << "loss after 120 steps: " << loss.item<double>() << "\n";
  return loss.item<double>() < 0.3 ? 0 : 1;
}
