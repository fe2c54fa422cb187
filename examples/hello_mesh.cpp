// SPDX-License-Identifier: Apache-2.0
//
// Eight virtual devices, one tensor on them, ordinary libtorch, and what it cost.
#include <iostream>

#include <torch/torch.h>

#include <meshtorch/meshtorch.h>

namespace mt = meshtorch;
using mt::P;

namespace {

int run() {
  mt::Runtime runtime({.devices = 8});
  auto mesh = runtime.make_mesh({{"dp", 4}, {"tp", 2}});

  runtime.out() << "x, dim 0 over dp and dim 1 over tp:\n";
  const auto plain_x = torch::randn({512, 64}), plain_w = torch::randn({64, 32});
  auto x = mt::device_put(plain_x, {mesh, P("dp", "tp")});
  mt::visualize_sharding(x);

  runtime.out() << "\nw, its rows over tp, the same for every dp:\n";
  auto w = mt::device_put(plain_w, {mesh, P("tp")});
  mt::visualize_sharding(w);

  runtime.out() << "\nx.matmul(w) contracts what tp cuts, so each device has a summand:\n";
  auto y = x.matmul(w);
  mt::visualize_sharding(y);

  runtime.out() << "\nrelu is not linear, so the summands are added before it:\n";
  auto z = torch::relu(y);
  mt::visualize_sharding(z);

  runtime.out() << "\nthe same value, laid out otherwise:\n";
  auto v = mt::reshard(z, P(mt::whole, "dp"));
  mt::visualize_sharding(v);

  runtime.out() << "\nthe ledger:\n" << runtime.ledger().to_string();

  const auto expected = torch::relu(plain_x.matmul(plain_w));
  const double error = (mt::full(v) - expected).abs().max().item<double>();
  const bool equal = error < 1e-4;
  runtime.out() << "\nlargest difference from one device: " << error
                << (equal ? ", ok\n" : ", FAILED\n");
  return equal ? 0 : 1;
}

}  // namespace

int main() try { return run(); } catch (const mt::Error& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
