// SPDX-License-Identifier: Apache-2.0
//
// Tensor parallelism, ZeRO-1 and accumulation; the loss is written for one data-parallel rank.
#include <meshtorch/meshtorch.h>
#include <meshtorch/models/gpt.h>

namespace mt = meshtorch;
using mt::P;
using torch::Tensor;

int main() {
  mt::Runtime runtime({.devices = 8});
  auto mesh = runtime.make_mesh({{"dp", 4}, {"tp", 2}});  // jax.make_mesh((4, 2), ("dp", "tp"))
  mt::Gpt model(mt::GptOptions{.length = 32, .width = 64, .layers = 2});
  const auto tokens = torch::arange(64 * 16).remainder(61).reshape({32, 32});
  const double dense = model->loss(tokens, tokens.roll(-1, 1)).item<double>();  // plain libtorch
  mt::shard(*model, mesh, mt::gpt_sharding());  // NamedSharding(mesh, P("tp")), ... for each leaf
  mt::Zero<torch::optim::AdamW> optimizer(model->parameters(), {.axis = "dp"},  // optax state over
                                          torch::optim::AdamWOptions(1e-3));    // ("tp", "dp")
  auto loss = mt::local_map(  // jax.shard_map(..., axis_names={"dp"}): tp stays automatic
      [](mt::Gpt& gpt, const Tensor& tokens, const Tensor& targets) {
        return gpt->loss(tokens, targets) / (4 * 4);  // one rank's rows of one of four microbatches
      },
      mesh, {P(), P("dp"), P("dp")}, P().unreduced("dp"), {.manual_axes = {"dp"}});

  const auto inputs = tokens.split(8), targets = tokens.roll(-1, 1).split(8);
  double all = 0;
  for (int i = 0; i < 4; ++i) all += loss(model, inputs[i], targets[i]).item<double>();
  for (int step = 0; step < 3; ++step) {
    runtime.ledger().clear();
    for (int i = 0; i < 4; ++i) loss(model, inputs[i], targets[i]).backward();  // jax.lax.scan
    optimizer.step();  // psum_scatter of the summed gradients, AdamW on the shards, all_gather
    optimizer.zero_grad();
  }
  runtime.out() << runtime.ledger().to_string();
  const auto over_dp = [](const mt::LedgerEntry& entry) { return entry.axes == "dp"; };
  const bool good = runtime.ledger().count(over_dp) == 2 && std::abs(all / dense - 1) < 1e-5;
  runtime.out() << "the dense loss, two collectives over dp: " << (good ? "ok\n" : "FAILED\n");
  return good ? 0 : 1;
}
