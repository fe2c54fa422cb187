// SPDX-License-Identifier: Apache-2.0
//
// Path rules and an FSDP rule on a plain struct: no base class, no macro, no annotation.
#include <meshtorch/meshtorch.h>

namespace mt = meshtorch;
using mt::P;
using torch::Tensor;

// clang-format off
struct Layer { Tensor up, down; std::optional<Tensor> bias; };
struct Model { Tensor embed; std::vector<Layer> layers; std::map<std::string, Tensor> heads; };
// clang-format on

Tensor loss(const Model& model, const Tensor& x, const Tensor& y) {
  auto h = x.matmul(model.embed);
  for (const Layer& layer : model.layers)
    h = h + torch::gelu(h.matmul(layer.up)).matmul(layer.down) + layer.bias.value();
  return torch::mse_loss(h.matmul(model.heads.at("value")), y);
}

int main() {
  mt::Runtime runtime({.devices = 8});
  auto mesh = runtime.make_mesh({{"fsdp", 4}, {"tp", 2}});
  const auto weight = [](int in, int out) { return torch::randn({in, out}) / std::sqrt(in); };
  const auto layer = [&] { return Layer{weight(64, 256), weight(256, 64), torch::zeros(64)}; };
  Model model{weight(32, 64), {layer(), layer(), layer()}, {{"value", weight(64, 8)}}};
  const mt::PathRules paths{{"up", P(mt::whole, "tp")}, {"down", P("tp")}, {"", P()}};
  const auto report =
      mt::shard(model, mesh, {paths, mt::FsdpRule("fsdp")});  // scalax: FSDPSharding
  runtime.out() << report.to_string();
  const auto x = mt::device_put(torch::randn({64, 32}), {mesh, P("fsdp")});
  const auto y = mt::device_put(torch::randn({64, 8}), {mesh, P("fsdp")});
  auto step = mt::value_and_grad(loss);  // jax.value_and_grad, jax.tree.map
  const auto update = [](Tensor p, const Tensor& g) { return p.sub_(0.1 * g); };
  const double before = loss(model, x, y).item<double>();
  for (int i = 0; i < 20; ++i) mt::tree_map(update, model, step(model, x, y).second);
  return loss(model, x, y).item<double>() < 0.9 * before ? 0 : 1;
}
