// SPDX-License-Identifier: Apache-2.0
//
// One side of benchmarks/peers: the GPT step of the project's peers (width 256, 6 layers, 8 heads,
// vocabulary 8192, 256 tokens, 8 sequences in 4 microbatches, AdamW, fp32), timed alone.
//
//   gpt_peer plain [steps]                                  plain libtorch, this process
//   meshtorch launch -n 2 -- gpt_peer sharded [steps]       data parallel with ZeRO-1 over the processes
//
// Prints "step=<median seconds> min=<seconds> loss=<of the last step>".
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include <torch/torch.h>

#include <meshtorch/meshtorch.h>
#include <meshtorch/models/gpt.h>

namespace mt = meshtorch;
using mt::P;

namespace {

constexpr std::int64_t kMicrobatches = 4, kRows = 8, kTokens = 256;
constexpr int kWarmUp = 3;

mt::Gpt make_model() {
  torch::manual_seed(0);
  return mt::Gpt(
      mt::GptOptions{.vocabulary = 8192, .length = kTokens, .width = 256, .layers = 6, .heads = 8});
}

mt::Batch make_batch() {
  torch::manual_seed(1);
  const auto tokens = torch::randint(8192, {kRows, kTokens + 1}, torch::kLong);
  return {tokens.slice(1, 0, kTokens).contiguous(), tokens.slice(1, 1).contiguous()};
}

using Step = std::function<double()>;

Step plain_step() {
  auto model = make_model();
  auto optimizer =
      std::make_shared<torch::optim::AdamW>(model->parameters(), torch::optim::AdamWOptions(3e-4));
  return [=, data = make_batch()]() mutable {
    double total = 0;
    for (std::int64_t i = 0; i < kMicrobatches; ++i) {
      const std::int64_t rows = kRows / kMicrobatches;
      auto loss = model->loss(data.inputs.narrow(0, i * rows, rows),
                              data.targets.narrow(0, i * rows, rows)) /
                  kMicrobatches;
      loss.backward();
      total += loss.item<double>();
    }
    optimizer->step();
    optimizer->zero_grad();
    return total;
  };
}

Step sharded_step(const mt::Mesh& mesh) {
  auto model = make_model();
  mt::replicate(*model, mesh);
  auto optimizer = std::make_shared<mt::Zero<torch::optim::AdamW>>(
      model->parameters(), mt::ZeroOptions{.axis = "dp"}, torch::optim::AdamWOptions(3e-4));
  return [=, data = make_batch()]() mutable {
    torch::Tensor total;
    for (const auto& micro : mt::microbatches(data, kMicrobatches, {mesh, P("dp")})) {
      auto loss = model->loss(micro.inputs, micro.targets) * micro.weight();
      loss.backward();
      total = total.defined() ? total + loss.detach() : loss.detach();
    }
    optimizer->step();
    optimizer->zero_grad();
    return total.item<double>();
  };
}

void time(const Step& step, int steps, std::ostream& out) {
  std::vector<double> times;
  double loss = 0;
  for (int i = -kWarmUp; i < steps; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    loss = step();
    if (i < 0) continue;
    times.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  std::sort(times.begin(), times.end());
  std::array<char, 100> line{};
  std::snprintf(line.data(), line.size(), "step=%.4f min=%.4f loss=%.7f", times[times.size() / 2],
                times.front(), loss);
  out << line.data() << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  const int steps = argc > 2 ? std::stoi(argv[2]) : 7;
  if ((mode != "plain" && mode != "sharded") || steps < 1) {
    std::cerr << "usage: gpt_peer plain|sharded [steps]\n";
    return 2;
  }
  mt::Runtime runtime({.devices = 1});
  time(mode == "plain" ? plain_step()
                       : sharded_step(runtime.make_mesh({{"dp", runtime.processes()}})),
       steps, runtime.out());
}
