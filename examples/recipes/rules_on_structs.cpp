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
  const auto x = torch::randn({64, 32}), y = torch::randn({64, 8});
  const double dense = loss(model, x, y).item<double>();  // plain libtorch
  const mt::PathRules paths{{"up", P(mt::whole, "tp")}, {"down", P("tp")}, {"", P()}};
  runtime.out() << mt::shard(model, mesh, {paths, mt::FsdpRule("fsdp")}).to_string();  // scalax
  const auto rows = mt::device_put(x, {mesh, P("fsdp")}), to = mt::device_put(y, {mesh, P("fsdp")});
  auto step = mt::value_and_grad(loss);  // jax.value_and_grad, jax.tree.map
  const auto update = [](Tensor p, const Tensor& g) { return p.sub_(0.02 * g); };
  const double before = loss(model, rows, to).item<double>();
  for (int i = 0; i < 20; ++i) mt::tree_map(update, model, step(model, rows, to).second);
  const double after = loss(model, rows, to).item<double>();
  runtime.out() << "loss " << before << " (dense " << dense << "), then " << after << "\n";
  return std::abs(before / dense - 1) < 1e-5 && after < 0.9 * before ? 0 : 1;
}
