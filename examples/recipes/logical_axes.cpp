// SPDX-License-Identifier: Apache-2.0
//
// Names for the dims of a transformer, and one table that says where each name lies.
#include <meshtorch/meshtorch.h>
#include <meshtorch/models/gpt.h>

namespace mt = meshtorch;

int main() {
  mt::Runtime runtime({.devices = 8});
  auto mesh = runtime.make_mesh({{"dp", 2}, {"fsdp", 2}, {"tp", 2}});
  mt::Gpt model(mt::GptOptions{.vocabulary = 64, .length = 32, .width = 64, .layers = 2});
  // clang-format off
  const mt::LogicalNames names{  // flax: nn.with_logical_partitioning(init, ("embed", "heads"))
      {"[qkv]\\.weight", {"heads", "embed"}}, {"out\\.weight", {"embed", "heads"}},
      {"up\\.weight", {"mlp", "embed"}}, {"down\\.weight", {"embed", "mlp"}},
      {"[qkv]\\.bias", {"heads"}}, {"up\\.bias", {"mlp"}}, {"norm|bias", {"norm"}},
      {"(tokens|head)\\.weight", {"vocab", "embed"}}, {"positions", {"length", "embed"}}};
  const mt::LogicalAxes axes{  // flax: logical_axis_rules
      {"batch", mt::axes("dp", "fsdp")}, {"vocab", "tp"}, {"heads", "tp"}, {"mlp", "tp"},
      {"embed", "fsdp"}, {"length", mt::whole}, {"norm", mt::whole}};
  // clang-format on
  const auto tokens = torch::arange(64 * 16).remainder(61).reshape({32, 32});
  const double dense = model->loss(tokens, tokens.roll(-1, 1)).item<double>();  // plain libtorch
  runtime.out() << mt::shard(*model, mesh, axes.with_names(names)).to_string();
  mt::Zero<torch::optim::AdamW> optimizer(model->parameters(), {.axis = "fsdp", .stage = 3},
                                          torch::optim::AdamWOptions(3e-3));
  const mt::NamedSharding rows{mesh, axes.spec({"batch", "length"})};
  const auto x = mt::device_put(tokens, rows), y = mt::device_put(tokens.roll(-1, 1), rows);
  std::vector<double> losses;
  for (int step = 0; step < 20; ++step) {
    const auto loss = model->loss(x, y);
    loss.backward();
    losses.push_back(loss.item<double>());
    optimizer.step();
    optimizer.zero_grad();
  }
  runtime.out() << "loss " << losses[0] << ", dense " << dense << ", then " << losses[19] << "\n";
  return std::abs(losses[0] / dense - 1) < 1e-5 && losses[19] < 2.5 ? 0 : 1;
}
