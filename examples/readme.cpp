// SPDX-License-Identifier: Apache-2.0
#include <iostream>

#include <meshtorch/meshtorch.h>
#include <meshtorch/models/gpt.h>

namespace mt = meshtorch;
using mt::P;

int main() {
  mt::Runtime runtime({.devices = 8});  // virtual devices of this process
  auto mesh = runtime.make_mesh({{"dp", 4}, {"tp", 2}});

  mt::Gpt model(mt::GptOptions{.length = 32, .width = 64, .layers = 1});  // plain torch::nn
  mt::shard(*model, mesh,
            mt::PathRules{{"(q|k|v|up)\\.(weight|bias)|(head|tokens)\\.weight", P("tp")},
                          {"(out|down)\\.weight", P(mt::whole, "tp")},
                          {"norm|bias|positions", P()}});
  mt::visualize_sharding(model->named_parameters()["layers.0.mlp.up.weight"]);

  mt::Zero<torch::optim::AdamW> optimizer(model->parameters(), {.axis = "dp"},
                                          torch::optim::AdamWOptions(1e-3));
  auto tokens = torch::arange(64 * 16).remainder(61).reshape({32, 32});
  for (const auto& micro : mt::microbatches({tokens, tokens.roll(-1, 1)}, 4, {mesh, P("dp")})) {
    auto loss = model->loss(micro.inputs, micro.targets) * micro.weight();
    loss.backward();  // gradients add up unreduced: nothing moves over dp
  }
  optimizer.step();  // one reduce-scatter, AdamW on the shards, one all-gather
  runtime.out() << runtime.ledger().to_string();
}
