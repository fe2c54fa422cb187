// SPDX-License-Identifier: Apache-2.0
//
// What a device holds in each stage of ZeRO: the formulas of the paper (arXiv 1910.02054, figure 1), by the
// tensors of a dry run and by the allocator of a real one. Writes docs/zero_memory.md.
#include "compare.h"

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

#include <meshtorch/base/table.h>
#include <meshtorch/models/gpt.h>
#include <meshtorch/tensor/memory.h>
#include <meshtorch/train/remat.h>
#include <meshtorch/train/zero_leaf.h>

namespace mt = meshtorch;
namespace optim = torch::optim;
using mt::P;
using mt::Use;

namespace {

struct Bytes {
  double parameters = 0, gradients = 0, optimizer = 0;
  double total() const { return parameters + gradients + optimizer; }
};

double local_bytes(const at::Tensor& tensor) {
  if (!tensor.defined()) return 0;
  return static_cast<double>(mt::addressable_shards(tensor)[0].data.nbytes());
}

// Of one device, between backward and the update.
Bytes bytes_of(mt::Zero<optim::Adam>& zero) {
  Bytes bytes;
  for (const mt::ZeroLeaf& leaf : zero.engine().leaves()) {
    bytes.parameters += local_bytes(leaf.stored());
    bytes.gradients += local_bytes(leaf.parameter().grad()) + local_bytes(leaf.shard().grad());
    if (!leaf.shares()) bytes.optimizer += local_bytes(leaf.shard());
  }
  for (const auto& [key, state] : zero.state()) {
    const auto& adam = static_cast<const optim::AdamParamState&>(*state);
    bytes.optimizer += local_bytes(adam.exp_avg()) + local_bytes(adam.exp_avg_sq());
  }
  return bytes;
}

constexpr std::int64_t kMatrices = 75;
const std::vector<std::int64_t> kShape{16000, 6250};  // 7.5 billion elements in all

// A dry run of a backward, a step and a backward on 64 devices.
Bytes measure(int stage, const std::string& precision) {
  mt::Runtime runtime({.devices = 64, .meta = true});
  const auto mesh = runtime.make_mesh({{"dp", 64}});
  std::vector<at::Tensor> parameters;
  for (std::int64_t i = 0; i < kMatrices; ++i) {
    const auto value = torch::empty(kShape, torch::device(torch::kMeta));
    parameters.push_back(mt::device_put(value, {mesh, P()}).requires_grad_());
  }
  const auto policy = mt::Precision::parse(precision);
  mt::Zero<optim::Adam> zero(parameters, {.stage = stage, .precision = policy},
                             optim::AdamOptions(1e-3));
  const auto backward = [&] {
    auto x =
        mt::device_put(torch::empty({64, kShape[0]}, torch::device(torch::kMeta)), {mesh, P("dp")});
    x = policy.cast_to_compute(x);
    for (const at::Tensor& parameter : parameters) x.matmul(parameter).sum().backward();
  };
  backward();
  zero.step();
  zero.zero_grad();
  backward();
  return bytes_of(zero);
}

std::string gigabytes(double bytes, int digits = 1) {
  std::ostringstream out;
  out.setf(std::ios::fixed);
  out.precision(digits);
  out << bytes / 1e9;
  return out.str();
}

struct Row {
  std::string what;
  int stage;
  std::string precision;
  std::string paper;     // as printed there; empty: not there
  double per_parameter;  // bytes, by the formula
};

std::vector<Row> rows() {
  const std::string as_in_paper = "params=float32,compute=bfloat16,accumulate=bfloat16";
  const std::string exact = "params=float32,compute=bfloat16,accumulate=float32";
  const double n = 64;
  return {{"stage 0, 2-byte gradients", 0, as_in_paper, "120", 2 + 2 + 12},
          {"stage 1, 2-byte gradients", 1, as_in_paper, "31.4", 2 + 2 + 12 / n},
          {"stage 2, 2-byte gradients", 2, as_in_paper, "16.6", 2 + (2 + 12) / n},
          {"stage 3, 2-byte gradients", 3, as_in_paper, "1.9", (2 + 2 + 12) / n},
          {"stage 1, fp32 gradients, unreduced", 1, exact, "", 2 + 4 + 12 / n},
          {"stage 2, fp32 gradients", 2, exact, "", 2 + (4 + 12) / n},
          {"stage 3, fp32 gradients", 3, exact, "", (2 + 4 + 12) / n}};
}

const std::string kIntroduction =
    R"(# ZeRO: what a device holds

7.5 billion parameters, Adam, 64 devices, in GB (10^9 bytes) per device, as in figure 1 of
[the paper](https://arxiv.org/abs/1910.02054). Counted on the tensors of a dry run ([meta.md](meta.md)) by
`tests/parity/zero_memory_test.cpp`, which writes this page and holds it to the formulas. Weights and activations
in bfloat16; the optimizer has float32 master weights and two moments: 12 bytes a parameter. The paper's
gradients have 2 bytes; sums of microbatches want 4 (`accumulate=float32`, the default). What an unreduced fp32
accumulator costs beside a sharded one is the difference of stages 1 and 2: it buys one reduction a step
instead of one a microbatch.

)";

TEST(ZeroMemory, TheTableOfThePaper) {
  const double elements = static_cast<double>(kMatrices * kShape[0] * kShape[1]);
  EXPECT_EQ(elements, 7.5e9);
  std::ostringstream page;
  page << kIntroduction
       << "| | parameters | gradients | optimizer | total | paper |\n|---|---|---|---|---|---|\n";
  for (const Row& row : rows()) {
    const Bytes bytes = measure(row.stage, row.precision);
    EXPECT_EQ(bytes.total(), row.per_parameter * elements) << row.what;
    // Figure 1 prints 120, 31.4, 16.6 and 1.9.
    if (!row.paper.empty())
      EXPECT_EQ(gigabytes(bytes.total(), row.paper == "120" ? 0 : 1), row.paper) << row.what;
    page << "| " << row.what << " | " << gigabytes(bytes.parameters) << " | "
         << gigabytes(bytes.gradients) << " | " << gigabytes(bytes.optimizer) << " | "
         << gigabytes(bytes.total()) << " | " << row.paper << " |\n";
  }
  constexpr char kPath[] = MESHTORCH_DOCS_DIR "/zero_memory.md";
  if (std::getenv("MESHTORCH_WRITE_DOCS") != nullptr) std::ofstream(kPath) << page.str();
  std::ostringstream written;
  written << std::ifstream(kPath).rdbuf();
  EXPECT_EQ(written.str(), page.str()) << "run script/coverage";
}

// The same by the real allocator: elements are float32 throughout here.
TEST(ZeroMemory, TheAllocatorSaysTheSame) {
  const std::int64_t n = 4, elements = 2 * 64 * 256 + 256 + 64;
  for (int stage = 0; stage <= 3; ++stage) {
    mt::Runtime runtime({.devices = n, .memory = true});
    const auto mesh = runtime.make_mesh({{"dp", n}});
    torch::nn::Sequential net(torch::nn::Linear(64, 256), torch::nn::Tanh(),
                              torch::nn::Linear(256, 64));
    mt::replicate(*net, mesh);
    mt::Zero<optim::Adam> zero(net->parameters(), {.stage = stage}, optim::AdamOptions(1e-3));
    const auto backward = [&] {
      net->forward(mt::device_put(torch::randn({8, 64}), {mesh, P("dp")}))
          .square()
          .mean()
          .backward();
    };
    backward();
    zero.step();
    zero.zero_grad();
    backward();
    const auto& account = *runtime.memory();
    const std::int64_t parts = 4 * elements / n, whole = 4 * elements;
    for (std::int64_t device = 0; device < n; ++device) {
      EXPECT_EQ(account.live(device, Use::parameters), stage == 3 ? parts : whole)
          << stage << "\n"
          << account.to_string();
      EXPECT_EQ(account.live(device, Use::gradients), stage >= 2 ? parts : whole)
          << stage << "\n"
          << account.to_string();
      // Two moments, and in stages 1 and 2 the parts of the parameters that the optimizer updates.
      const std::int64_t moments = 2 * (stage == 0 ? whole : parts);
      EXPECT_EQ(account.live(device, Use::optimizer),
                moments + (stage == 1 || stage == 2 ? parts : 0))
          << stage << "\n"
          << account.to_string();
    }
  }
}

constexpr int kBlocks = 3, kLayers = 4;  // layers of a block

std::int64_t peak_activations(std::int64_t microbatches, bool remat) {
  mt::Runtime runtime({.devices = 4, .memory = true});
  const auto mesh = runtime.make_mesh({{"dp", 4}});
  std::vector<torch::nn::Sequential> blocks(kBlocks);
  std::vector<at::Tensor> parameters;
  for (auto& block : blocks) {
    for (int i = 0; i < kLayers; ++i) {
      block->push_back(torch::nn::Linear(32, 32));
      block->push_back(torch::nn::Tanh());
    }
    mt::replicate(*block, mesh);
    for (const auto& parameter : block->parameters()) parameters.push_back(parameter);
  }
  mt::Zero<optim::SGD> zero(parameters, {}, optim::SGDOptions(0.1));
  std::int64_t peak = 0;
  for (int step = 0; step < 2; ++step) {
    runtime.memory()->reset_peaks();
    for (std::int64_t i = 0; i < microbatches; ++i) {
      auto x = mt::device_put(torch::randn({512, 32}), {mesh, P("dp")});
      for (auto& block : blocks) {
        x = remat ? mt::remat([block](const at::Tensor& h) mutable { return block->forward(h); }, x)
                  : block->forward(x);
      }
      x.square().mean().backward();
    }
    zero.step();
    zero.zero_grad();
    peak = runtime.memory()->peak(1, Use::activations);
  }
  return peak;
}

constexpr std::int64_t kResult = 512 / 4 * 32 * 4;  // bytes of a layer's result on a device

TEST(ZeroMemory, ActivationsOfAMicrobatchAreGoneBeforeTheNext) {
  const std::int64_t one = peak_activations(1, false);
  EXPECT_GE(one, kBlocks * kLayers * kResult);  // backward of tanh keeps them
  EXPECT_EQ(peak_activations(2, false), one);
  EXPECT_EQ(peak_activations(8, false), one);
}

TEST(ZeroMemory, RematKeepsOneBlockAndTheInputsOfTheOthers) {
  // Of twelve results two are kept between the blocks, and four where one runs again.
  EXPECT_LE(peak_activations(2, true), peak_activations(2, false) - (12 - 2 - 4 - 1) * kResult);
}

}  // namespace
