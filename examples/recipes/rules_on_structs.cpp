// SPDX-License-Identifier: Apache-2.0
//
// Path rules and an FSDP rule on a plain struct: no base class, no macro, no annotation.
#include <iostream>

#include <meshtorch/meshtorch.h>

namespace mt = meshtorch;
using mt::P;
using torch::Tensor;

struct Layer { Tensor up_proj, down_proj; std::optional<Tensor> bias; };
struct Model { Tensor embed; std::vector<Layer> layers; std::map<std::string, Tensor> heads; };

Tensor loss(const Model& model, const Tensor& x, const Tensor& y) {
  auto h = x.matmul(model.embed);
  for (const Layer& layer : model.layers)
    h = h + torch::gelu(h.matmul(layer.up_proj)).matmul(layer.down_proj) + layer.bias.value();
  return torch::mse_loss(h.matmul(model.heads.at("value")), y);
}

int main() {
  mt::Runtime runtime({.devices = 8});
  auto mesh = runtime.make_mesh({{"fsdp", 4}, {"tp", 2}});
  const auto weight = [](int in, int out) { return torch::randn({in, out}) / std::sqrt(in); };
  Model model{weight(32, 64), {}, {{"value", weight(64, 8)}}};
  for (int i = 0; i < 3; ++i) model.layers.push_back({weight(64, 256), weight(256, 64), torch::zeros(64)});

  auto report = mt::shard(model, mesh,  // scalax: PyTreeMatchRule / MatchPartitionSpec, FSDPShardingRule
                          {mt::PathRules{{"up_proj", P(mt::whole, "tp")}, {"down_proj", P("tp")}, {"", P()}},
                           mt::FsdpRule("fsdp", {.min_size = 1024})});
  runtime.out() << report.to_string();
  const auto x = mt::device_put(torch::randn({64, 32}), {mesh, P("fsdp")});
  const auto y = mt::device_put(torch::randn({64, 8}), {mesh, P("fsdp")});
  auto step = mt::value_and_grad(loss);  // jax.value_and_grad over the tree
  const double before = loss(model, x, y).item<double>();
  for (int i = 0; i < 20; ++i)
    mt::tree_map([](Tensor p, const Tensor& g) { return p.sub_(0.1 * g); }, model, step(model, x, y).second);
  return loss(model, x, y).item<double>() < 0.9 * before ? 0 : 1;
}
