// SPDX-License-Identifier: Apache-2.0
//
// Megatron's pair: the first weight cut by columns, the second by rows, one all-reduce for both.
// The model is plain torch::nn; three rules beside it make it tensor parallel.
#include <iostream>

#include <torch/torch.h>

#include <meshtorch/meshtorch.h>
#include <meshtorch/models/mlp.h>

namespace mt = meshtorch;
using mt::P;

namespace {

mt::Mlp make_model() {
  torch::manual_seed(1);
  return mt::Mlp(mt::MlpOptions{
      .in = 64, .hidden = 256, .out = 64, .layers = 2, .activation = mt::Activation::gelu});
}

double difference(const torch::Tensor& a, const torch::Tensor& b) {
  return (mt::full(a.detach()) - b.detach()).abs().max().item<double>();
}

int run() {
  mt::Runtime runtime({.devices = 8});
  auto mesh = runtime.make_mesh({{"tp", 8}});

  auto dense = make_model();
  auto model = make_model();
  const auto report = mt::shard(*model, mesh,
                                mt::PathRules{{"layers\\.0\\.", P("tp")},
                                              {"layers\\.1\\.weight", P(mt::whole, "tp")},
                                              {"layers\\.1\\.bias", P()}});
  runtime.out() << report.to_string()
                << "\nlayers.0.weight, torch's [out, in], by columns of the product:\n";
  mt::visualize_sharding(model->named_parameters()["layers.0.weight"]);
  runtime.out() << "\nlayers.1.weight, by rows:\n";
  mt::visualize_sharding(model->named_parameters()["layers.1.weight"]);

  const auto plain_x = torch::randn({32, 64});
  const auto x = mt::replicate(plain_x, mesh);
  runtime.ledger().clear();
  auto y = model->forward(x);
  runtime.out() << "\nthe result, before anyone reads it:\n";
  mt::visualize_sharding(y);
  y = mt::reshard(y, P());
  runtime.out() << "\nthe ledger of the forward pass:\n" << runtime.ledger().to_string();
  const auto& entries = runtime.ledger().entries();
  const bool one = entries.size() == 1 && entries[0].kind == mt::Collective::all_reduce;

  runtime.ledger().clear();
  y.square().mean().backward();
  auto plain_y = dense->forward(plain_x);
  plain_y.square().mean().backward();
  runtime.out() << "\ncollectives of the backward pass: " << runtime.ledger().entries().size()
                << "\n";

  double worst = difference(y, plain_y);
  for (const auto& parameter : model->named_parameters()) {
    worst = std::max(worst, difference(parameter.value().grad(),
                                       dense->named_parameters()[parameter.key()].grad()));
  }
  const bool equal = worst < 1e-5;
  runtime.out() << "one all-reduce for the pair: " << (one ? "ok" : "FAILED")
                << "\nlargest difference from dense, value and gradients: " << worst
                << (equal ? ", ok\n" : ", FAILED\n");
  return one && equal ? 0 : 1;
}

}  // namespace

int main() try { return run(); } catch (const mt::Error& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
