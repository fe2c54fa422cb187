// SPDX-License-Identifier: Apache-2.0
//
// Tensor parallelism for a model that says nothing of it.
#include <iostream>

#include <meshtorch/meshtorch.h>
#include <meshtorch/models/gpt.h>

namespace mt = meshtorch;
using mt::P;

int main() {
  mt::Runtime runtime({.devices = 8});
  auto mesh = runtime.make_mesh({{"dp", 4}, {"tp", 2}});
  mt::Gpt model(
      mt::GptOptions{.vocabulary = 64, .length = 32, .width = 64, .layers = 2, .heads = 4});
  const auto tokens = torch::arange(64 * 16).remainder(61).reshape({32, 32});
  const auto targets = tokens.roll(-1, 1);
  const double expected = model->loss(tokens, targets).item<double>();  // on one device

  // One forward on meta tensors. In JAX a person writes this table, or a few lines of it for GSPMD.
  const auto megatron =
      mt::MegatronRule("tp").record(*model, mesh, [&] { return model->loss(tokens, targets); });
  runtime.out() << megatron.to_string() << "\n";
  runtime.out() << mt::shard(*model, mesh, megatron.table()).to_string() << "\n";

  runtime.ledger().clear();
  auto loss = model->loss(mt::device_put(tokens, {mesh, P("dp")}),
                          mt::device_put(targets, {mesh, P("dp")}));
  loss.backward();
  runtime.out() << runtime.ledger().to_string();
  const auto gathers = [](const mt::LedgerEntry& e) {
    return e.kind == mt::Collective::all_gather;
  };
  const bool good =
      runtime.ledger().count(gathers) == 0 && std::abs(loss.item<double>() / expected - 1) < 1e-6;
  runtime.out() << "no gathered weight, the loss of one device: " << (good ? "ok\n" : "FAILED\n");
  return good ? 0 : 1;
}
