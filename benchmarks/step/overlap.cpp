// SPDX-License-Identifier: Apache-2.0
//
// What overlap is worth: a GPT trains data-parallel over the processes with ZeRO, blocks of steps with
// overlap on and off in turn in one run.
//
//   mpirun -n 2 overlap [stage=1] [rounds=5] [microbatches=2] [bucket_mb=4]
//
// Of each, medians over the steps: their time, the processor's time that the process took (what is above
// that without overlap is the price of collectives in flight), and the time in which the program did
// nothing but wait for collectives over dp; how many these are, and the bytes they sent. The model is that
// of gpt_step. The first step of a block is not counted.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include <torch/torch.h>

#include <meshtorch/meshtorch.h>
#include <meshtorch/models/gpt.h>

namespace mt = meshtorch;
using mt::P;

namespace {

constexpr std::int64_t kSequences = 2, kTokens = 256;  // of a microbatch, of one device
constexpr int kStepsOfBlock = 4;

struct Arguments {
  int stage = 1, rounds = 5, microbatches = 2, bucket_mb = 4;
};

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  int* all[] = {&arguments.stage, &arguments.rounds, &arguments.microbatches, &arguments.bucket_mb};
  for (int i = 1; i < argc && i <= 4; ++i) *all[i - 1] = std::stoi(argv[i]);
  return arguments;
}

mt::GptOptions gpt_options() {
  return {.vocabulary = 8192, .length = kTokens, .width = 256, .layers = 6, .heads = 8};
}

mt::Batch make_batch(std::int64_t rows) {
  auto tokens = torch::randint(gpt_options().vocabulary, {rows, kTokens + 1}, torch::kLong);
  return {tokens.slice(1, 0, kTokens).contiguous(), tokens.slice(1, 1).contiguous()};
}

// Sums over the collectives of Zero so far.
struct Account {
  double waited = 0;
  std::int64_t count = 0, bytes = 0;
};

Account account(const mt::Ledger& ledger) {
  const auto of_zero = [](const auto& entry) { return entry.op.rfind("Zero::", 0) == 0; };
  return {ledger.waited(of_zero), ledger.count(of_zero), ledger.bytes(of_zero)};
}

class Trainer {
 public:
  Trainer(const mt::Mesh& mesh, const Arguments& arguments, bool overlap)
      : mesh_(mesh), microbatches_(arguments.microbatches) {
    torch::manual_seed(0);
    model_ = mt::Gpt(gpt_options());
    mt::replicate(*model_, mesh);
    optimizer_ = std::make_unique<mt::Zero<torch::optim::AdamW>>(
        model_->parameters(),
        mt::ZeroOptions{.stage = arguments.stage,
                        .bucket_bytes = std::int64_t{arguments.bucket_mb} << 20,
                        .overlap = overlap},
        torch::optim::AdamWOptions(3e-4));
  }

  double step(const mt::Batch& batch) {
    double total = 0;
    for (const auto& micro : mt::microbatches(batch, microbatches_, {mesh_, P("dp")})) {
      mt::reduce_scope scope(*optimizer_, micro.last() ? mt::Reduce::each : mt::Reduce::once);
      auto loss = model_->loss(micro.inputs, micro.targets) * micro.weight();
      loss.backward();
      total += loss.item<double>();
    }
    optimizer_->step();
    optimizer_->zero_grad();
    return total;
  }

 private:
  mt::Mesh mesh_;
  std::int64_t microbatches_;
  mt::Gpt model_{nullptr};
  std::unique_ptr<mt::Zero<torch::optim::AdamW>> optimizer_;
};

struct Times {
  std::vector<double> step, waited, cpu;
  std::int64_t count = 0, bytes = 0;
  double loss = 0;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void run_block(mt::Runtime& runtime, Trainer& trainer, const mt::Batch& batch, Times& times) {
  for (int i = 0; i < kStepsOfBlock; ++i) {
    const Account before = account(runtime.ledger());
    const std::clock_t cpu = std::clock();
    const auto begin = std::chrono::steady_clock::now();
    times.loss = trainer.step(batch);
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
    const Account after = account(runtime.ledger());
    if (i == 0) continue;
    times.step.push_back(time.count());
    times.cpu.push_back(static_cast<double>(std::clock() - cpu) / CLOCKS_PER_SEC);
    times.waited.push_back(after.waited - before.waited);
    times.count = after.count - before.count;
    times.bytes = after.bytes - before.bytes;
  }
  runtime.communicator().barrier();  // nothing of this block goes on in the next
}

}  // namespace

int main(int argc, char** argv) {
  const Arguments arguments = parse(argc, argv);
  mt::Runtime runtime({.devices = 1});
  const auto mesh = runtime.make_mesh({{"dp", runtime.processes()}});
  const auto batch = make_batch(arguments.microbatches * kSequences * runtime.processes());
  Trainer on(mesh, arguments, true), off(mesh, arguments, false);
  Times with, without;
  for (int round = 0; round < arguments.rounds; ++round) {
    run_block(runtime, on, batch, with);
    run_block(runtime, off, batch, without);
  }
  if (runtime.process() != 0) return 0;
  std::printf("stage %d, %d microbatches, buckets of %d MB, dp=%d\n", arguments.stage,
              arguments.microbatches, arguments.bucket_mb, runtime.processes());
  for (const auto& [name, times] : {std::pair("on", &with), std::pair("off", &without)}) {
    std::printf(
        "overlap %-3s  step %7.1f ms  cpu %7.1f ms  waited for dp %6.1f ms  %3ld collectives  %.1f "
        "MB"
        "  loss %.6f\n",
        name, median(times->step) * 1e3, median(times->cpu) * 1e3, median(times->waited) * 1e3,
        static_cast<long>(times->count), static_cast<double>(times->bytes) / 1e6, times->loss);
  }
}
