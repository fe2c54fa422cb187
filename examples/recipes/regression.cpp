// SPDX-License-Identifier: Apache-2.0
//
// A mesh, named shardings, and a fit: plain libtorch in between.
#include <iostream>

#include <meshtorch/meshtorch.h>

namespace mt = meshtorch;
using mt::P;

int main() {
  mt::Runtime runtime({.devices = 8});
  auto mesh = runtime.make_mesh({{"data", 8}});  // Mesh(jax.devices(), ("data",))
  const mt::NamedSharding rows{mesh, P("data")},
      whole{mesh, P()};  // NamedSharding(mesh, P("data"))

  torch::manual_seed(0);
  const auto plain_x = torch::linspace(-1, 1, 1000).unsqueeze(1);
  const auto plain_y = 0.8 * plain_x.square() + 0.1 + 0.02 * torch::randn_like(plain_x);
  auto x = mt::device_put(plain_x, rows), y = mt::device_put(plain_y, rows);  // jax.device_put
  mt::visualize_sharding(x);  // jax.debug.visualize_array_sharding

  torch::nn::Sequential model(torch::nn::Linear(1, 64), torch::nn::Tanh(),
                              torch::nn::Linear(64, 1));
  mt::replicate(*model, mesh);  // jax.device_put(params, whole)
  mt::visualize_sharding(model->parameters()[0]);
  torch::optim::Adam optimizer(model->parameters(), torch::optim::AdamOptions(1e-2));
  for (int step = 0; step < 2000; ++step) {
    optimizer.zero_grad();
    torch::mse_loss(model->forward(x), y).backward();
    optimizer.step();  // the gradients' one all-reduce
  }
  const double loss = torch::mse_loss(model->forward(x), y).item<double>();
  const bool good = loss < 1.2 * 0.02 * 0.02 && mt::sharding_of(y) == rows;
  runtime.out() << "mean square error " << loss << ", that of the noise is 0.0004"
                << (good ? ", ok\n" : ", FAILED\n");
  return good && mt::sharding_of(model->parameters()[0]) == whole ? 0 : 1;
}
