// SPDX-License-Identifier: Apache-2.0
//
// What the sharded dispatch adds to a tiny op: plain libtorch, a mesh of one device, and 8 devices.
#include <benchmark/benchmark.h>
#include <torch/torch.h>

#include <meshtorch/meshtorch.h>

namespace mt = meshtorch;
using mt::P;

namespace {

mt::Runtime& runtime() {
  static mt::Runtime runtime({.devices = 8});
  return runtime;
}

at::Tensor on_mesh(std::int64_t devices) {
  auto x = torch::randn({8, 8});
  return devices == 0 ? x : mt::device_put(x, {runtime().make_mesh({{"dp", devices}}), P("dp")});
}

void add(benchmark::State& state) {
  torch::NoGradGuard no_grad;
  at::set_num_threads(1);
  const auto x = on_mesh(state.range(0)), y = on_mesh(state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(x + y);
}

void add_in_place(benchmark::State& state) {
  torch::NoGradGuard no_grad;
  at::set_num_threads(1);
  const auto x = on_mesh(state.range(0)), y = on_mesh(state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(x.add_(y));
}

void view(benchmark::State& state) {
  torch::NoGradGuard no_grad;
  at::set_num_threads(1);
  const auto x = on_mesh(state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(x.t());
}

}  // namespace

// The argument: 0 plain libtorch, else devices of the mesh.
BENCHMARK(add)->Arg(0)->Arg(1)->Arg(8);
BENCHMARK(add_in_place)->Arg(0)->Arg(1)->Arg(8);
BENCHMARK(view)->Arg(0)->Arg(1)->Arg(8);
BENCHMARK_MAIN();
