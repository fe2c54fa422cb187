// SPDX-License-Identifier: Apache-2.0
//
// ZeRO-1, tensor parallelism and gradient accumulation on a small GPT: what data parallelism costs
// does not depend on the number of microbatches. One reduce-scatter, one all-gather, the bytes that
// theory asks for.
#include <cmath>
#include <iostream>

#include <torch/torch.h>

#include <meshtorch/base/table.h>
#include <meshtorch/meshtorch.h>
#include <meshtorch/models/gpt.h>

namespace mt = meshtorch;
using mt::P;

namespace {

constexpr int kSteps = 10;
const mt::GptOptions kGpt{.vocabulary = 64, .length = 32, .width = 64, .layers = 2, .heads = 4};

// Sequences that count by 1 to 5, modulo the vocabulary.
mt::Batch make_batch() {
  const auto first = torch::randint(kGpt.vocabulary, {32, 1}),
             stride = torch::randint(1, 6, {32, 1});
  const auto tokens = (first + stride * torch::arange(kGpt.length + 1)) % kGpt.vocabulary;
  return {tokens.slice(1, 0, kGpt.length).contiguous(), tokens.slice(1, 1).contiguous()};
}

struct Run {
  double loss = 0;  // of the last step
  std::int64_t reduce_scatters = 0, all_gathers = 0, all_reduces = 0,
               dp_bytes = 0;  // over dp, in that step
  double bound = 0;           // bytes over dp that no algorithm can go below
};

Run train(mt::Runtime& runtime, std::int64_t microbatches, bool print) {
  auto mesh = runtime.make_mesh({{"dp", 4}, {"tp", 2}});
  torch::manual_seed(1);
  mt::Gpt model(kGpt);
  mt::shard(*model, mesh, mt::gpt_sharding());
  mt::Zero<torch::optim::AdamW> optimizer(model->parameters(), {.axis = "dp"},
                                          torch::optim::AdamWOptions(3e-3));

  Run run;
  auto& ledger = runtime.ledger();
  for (int step = 0; step < kSteps; ++step) {
    ledger.clear();
    torch::Tensor total;
    for (const auto& micro : mt::microbatches(make_batch(), microbatches, {mesh, P("dp")})) {
      mt::named_scope scope("microbatch");
      auto loss = model->loss(micro.inputs, micro.targets) * micro.weight();
      loss.backward();
      total = total.defined() ? total + loss.detach() : loss.detach();
    }
    optimizer.step();
    optimizer.zero_grad();
    const auto over_dp = [&](mt::Collective kind) {
      return ledger.count(
          [&](const auto& entry) { return entry.axes == "dp" && entry.kind == kind; });
    };
    run.reduce_scatters = over_dp(mt::Collective::reduce_scatter);
    run.all_gathers = over_dp(mt::Collective::all_gather);
    run.all_reduces = over_dp(mt::Collective::all_reduce);
    run.dp_bytes = ledger.bytes([](const auto& entry) { return entry.axes == "dp"; });
    if (print && step + 1 == kSteps) mt::Runtime::current().out() << ledger.to_string() << "\n";
    run.loss = total.item<double>();
  }
  // A reduction and a gathering of what a device holds, each (n-1)/n of it.
  for (const auto& parameter : model->parameters()) {
    run.bound +=
        2 * 3 / 4.0 * static_cast<double>(mt::addressable_shards(parameter)[0].data.nbytes());
  }
  return run;
}

int run() {
  mt::Runtime runtime({.devices = 8});
  mt::Table table({{"microbatches", mt::Align::right},
                   {"reduce-scatters", mt::Align::right},
                   {"all-gathers", mt::Align::right},
                   {"all-reduces", mt::Align::right},
                   {"bytes over dp", mt::Align::right},
                   {"lower bound", mt::Align::right},
                   {"loss", mt::Align::right}});
  bool good = true;
  Run first;
  for (const std::int64_t microbatches : {1, 4, 8}) {
    if (microbatches == 4) runtime.out() << "the ledger of a step of 4 microbatches:\n";
    const Run run = train(runtime, microbatches, microbatches == 4);
    if (microbatches == 1) first = run;
    good = good && run.reduce_scatters == 1 && run.all_gathers == 1 &&
           run.dp_bytes == first.dp_bytes &&
           static_cast<double>(run.dp_bytes) <= 1.01 * run.bound &&
           std::abs(run.loss / first.loss - 1) < 1e-4;
    table.add({std::to_string(microbatches), std::to_string(run.reduce_scatters),
               std::to_string(run.all_gathers), std::to_string(run.all_reduces),
               mt::with_commas(run.dp_bytes), mt::with_commas(std::llround(run.bound)),
               std::to_string(run.loss)});
  }
  runtime.out() << table.to_string()
                << "\none reduce-scatter, one all-gather, the same bytes, the same loss: "
                << (good ? "ok\n" : "FAILED\n");
  return good ? 0 : 1;
}

}  // namespace

int main() try { return run(); } catch (const mt::Error& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
