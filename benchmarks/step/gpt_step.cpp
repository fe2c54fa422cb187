// SPDX-License-Identifier: Apache-2.0
//
// Tokens per second of one GPT training step, side by side in one run: plain libtorch without
// meshtorch, a mesh of one device, and (dp=4, tp=2) on 8 virtual devices with AdamW as it is and with
// ZeRO in every stage. The model of the project's
// peers: width 256, 6 layers, 8 heads, vocabulary 8192, 256 tokens, 4 microbatches of 8 sequences,
// AdamW, fp32. They alternate, so that drift of the machine meets all of them; medians and the
// ratios of the medians are printed.
//
//   gpt_step [rounds]        (default 5)
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <torch/torch.h>

#include <meshtorch/meshtorch.h>
#include <meshtorch/models/gpt.h>
#include <meshtorch/train/train_step.h>

namespace mt = meshtorch;
using mt::P;

namespace {

constexpr std::int64_t kMicrobatches = 4, kSequences = 8, kTokens = 256;

mt::GptOptions options() {
  return {.vocabulary = 8192, .length = kTokens, .width = 256, .layers = 6, .heads = 8};
}

mt::Batch batch() {
  auto tokens =
      torch::randint(options().vocabulary, {kMicrobatches * kSequences, kTokens + 1}, torch::kLong);
  return {tokens.slice(1, 0, kTokens).contiguous(), tokens.slice(1, 1).contiguous()};
}

using Step = std::function<double()>;

Step plain_step(const mt::Batch& data) {
  torch::manual_seed(0);
  mt::Gpt model(options());
  auto optimizer =
      std::make_shared<torch::optim::AdamW>(model->parameters(), torch::optim::AdamWOptions(3e-4));
  return [=]() mutable {
    double total = 0;
    for (std::int64_t i = 0; i < kMicrobatches; ++i) {
      auto loss = model->loss(data.inputs.narrow(0, i * kSequences, kSequences),
                              data.targets.narrow(0, i * kSequences, kSequences)) /
                  kMicrobatches;
      loss.backward();
      total += loss.item<double>();
    }
    optimizer->step();
    optimizer->zero_grad();
    return total;
  };
}

// Stage -1: the optimizer as it is, on the sharded model.
Step sharded_step(const mt::Batch& data, const mt::Mesh& mesh, int stage) {
  torch::manual_seed(0);
  mt::Gpt model(options());
  mt::shard(*model, mesh, mt::gpt_sharding());
  const auto loss = [model](const at::Tensor& inputs, const at::Tensor& targets) mutable {
    return model->loss(inputs, targets);
  };
  const mt::TrainStepOptions step{.sharding = {mesh, P("dp")}, .microbatches = kMicrobatches};
  const torch::optim::AdamWOptions adam(3e-4);
  if (stage < 0) {
    auto optimizer = std::make_shared<torch::optim::AdamW>(model->parameters(), adam);
    return [=, step = mt::TrainStep(loss, *optimizer, step), kept = optimizer]() mutable {
      return *step(data).loss;
    };
  }
  auto optimizer = std::make_shared<mt::Zero<torch::optim::AdamW>>(
      model->parameters(), mt::ZeroOptions{.axis = "dp", .stage = stage}, adam);
  return [=, step = mt::TrainStep(loss, *optimizer, step), kept = optimizer]() mutable {
    return *step(data).loss;
  };
}

double seconds(const Step& step, double& loss) {
  const auto start = std::chrono::steady_clock::now();
  loss = step();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::stoi(argv[1]) : 5;
  mt::Runtime runtime({.devices = 8});
  const auto data = batch();
  std::vector<std::pair<std::string, Step>> runs{
      {"plain libtorch", plain_step(data)},
      {"mesh (1)", sharded_step(data, runtime.make_mesh({{"dp", 1}, {"tp", 1}}), 1)}};
  const auto grid = runtime.make_mesh({{"dp", 4}, {"tp", 2}});
  for (const int stage : {-1, 0, 1, 2, 3}) {
    const std::string what = stage < 0 ? "AdamW" : "ZeRO-" + std::to_string(stage);
    runs.emplace_back("mesh (4, 2), " + what, sharded_step(data, grid, stage));
  }
  std::map<std::string, std::vector<double>> times;
  for (int round = -1; round < rounds; ++round) {  // the first is warm-up
    for (auto& [name, step] : runs) {
      double loss = 0;
      const double time = seconds(step, loss);
      if (round >= 0) times[name].push_back(time);
      std::printf("round %2d  %-20s %7.3f s  loss %.7f\n", round, name.c_str(), time, loss);
      std::fflush(stdout);
    }
  }
  const double tokens = kMicrobatches * kSequences * kTokens;
  const double base = median(times["plain libtorch"]);
  for (auto& [name, _] : runs) {
    const double time = median(times[name]);
    std::printf("%-20s median %7.3f s  %8.0f tokens/s  %5.1f%% of plain libtorch\n", name.c_str(),
                time, tokens / time, 100 * base / time);
  }
}
