// SPDX-License-Identifier: Apache-2.0
//
// Names for the dims of a transformer, and one table that says where each name lies.
#include <iostream>

#include <meshtorch/meshtorch.h>
#include <meshtorch/models/gpt.h>

namespace mt = meshtorch;

int main() {
  mt::Runtime runtime({.devices = 8});
  auto mesh = runtime.make_mesh({{"dp", 2}, {"fsdp", 2}, {"tp", 2}});
  mt::Gpt model(mt::GptOptions{.vocabulary = 64, .length = 32, .width = 64, .layers = 2, .heads = 4});

  const mt::LogicalNames names{  // flax: nn.with_logical_partitioning(init, ("embed", "heads"))
      {"attention\\.[qkv]\\.weight", {"heads", "embed"}}, {"attention\\.[qkv]\\.bias", {"heads"}},
      {"attention\\.out\\.weight", {"embed", "heads"}},   {"mlp\\.up\\.weight", {"mlp", "embed"}},
      {"mlp\\.up\\.bias", {"mlp"}},                       {"mlp\\.down\\.weight", {"embed", "mlp"}},
      {"(tokens|head)\\.weight", {"vocab", "embed"}},     {"positions", {"length", "embed"}},
      {"norm|bias", {"norm"}}};
  const mt::LogicalAxes axes{{"batch", mt::axes("dp", "fsdp")}, {"vocab", "tp"}, {"heads", "tp"},
                             {"mlp", "tp"}, {"embed", "fsdp"}, {"length", mt::whole},
                             {"norm", mt::whole}};  // flax: logical_axis_rules
  runtime.out() << mt::shard(*model, mesh, axes.with_names(names)).to_string();

  mt::Zero<torch::optim::AdamW> optimizer(model->parameters(), {.axis = "fsdp", .stage = 3},
                                          torch::optim::AdamWOptions(3e-3));
  const auto tokens = torch::arange(64 * 16).remainder(61).reshape({32, 32});
  const auto x = mt::device_put(tokens, {mesh, axes.spec({"batch", "length"})});
  const auto y = mt::device_put(tokens.roll(-1, 1), {mesh, axes.spec({"batch", "length"})});
  double loss = 0;
  for (int step = 0; step < 20; ++step) {
    auto value = model->loss(x, y);
    value.backward();
    optimizer.step();
    optimizer.zero_grad();
    loss = value.item<double>();
  }
  runtime.out() << "loss after 20 steps: " << loss << (loss < 2.5 ? ", ok\n" : ", FAILED\n");
  return loss < 2.5 ? 0 : 1;
}
