// SPDX-License-Identifier: Apache-2.0
//
// What a step costs within the processes and between them: the closed formulas of communicator.h and of
// comm/distributed/collectives.h. Eight devices in all, over as many processes as there are.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <meshtorch/comm/environment.h>
#include <meshtorch/meshtorch.h>

namespace mt = meshtorch;
using mt::P;

namespace {

constexpr std::int64_t kDevices = 8;

class LedgerOfProcesses : public testing::Test {
 protected:
  mt::LedgerEntry only_entry() {
    EXPECT_EQ(runtime.ledger().entries().size(), 1u);
    return runtime.ledger().entries().at(0);
  }

  const int processes = mt::read_environment().processes;
  mt::Runtime runtime{{.devices = kDevices / processes}};
  const std::int64_t p = processes;
};

TEST_F(LedgerOfProcesses, AllReduceAcross) {
  const auto mesh = runtime.make_mesh({{"dp", kDevices}});
  const auto x = mt::device_put(torch::ones({512, 128}), {mesh, P().unreduced("dp")});
  const std::int64_t bytes = 512 * 128 * 4;
  mt::reshard(x, P());
  EXPECT_EQ(only_entry().bytes, 2 * bytes * (kDevices - 1) / kDevices);
  EXPECT_EQ(only_entry().wire, 2 * bytes * (p - 1) / p);
}

TEST_F(LedgerOfProcesses, AxesWithinAProcessCrossNothing) {
  const auto mesh = runtime.make_mesh({{"dp", p}, {"tp", kDevices / p}});
  const auto x = mt::device_put(torch::ones({64, 128}), {mesh, P().unreduced("tp")});
  mt::reshard(x, P());
  EXPECT_EQ(only_entry().axes, "tp");
  EXPECT_EQ(only_entry().wire, 0);
}

// One reduce-scatter and one all-gather: of this process's gradients, once summed in memory, what others
// own; and its updated share to each of them.
TEST_F(LedgerOfProcesses, AStepOfZero) {
  const auto mesh = runtime.make_mesh({{"dp", kDevices}});
  torch::nn::Linear model(torch::nn::LinearOptions(256, 128).bias(false));
  mt::replicate(*model, mesh);
  mt::Zero<torch::optim::SGD> optimizer(model->parameters(), {.axis = "dp"},
                                        torch::optim::SGDOptions(0.1));
  const auto x = mt::device_put(torch::ones({16, 256}), {mesh, P("dp")});
  model->forward(x).sum().backward();
  runtime.ledger().clear();
  optimizer.step();
  mt::full(model->weight.detach());  // what the gather sent is known when it has arrived
  const std::int64_t bytes = 256 * 128 * 4;
  for (const auto kind : {mt::Collective::reduce_scatter, mt::Collective::all_gather}) {
    const auto mine = [&](const mt::LedgerEntry& entry) { return entry.kind == kind; };
    EXPECT_EQ(runtime.ledger().count(mine), 1) << mt::name(kind);
    EXPECT_EQ(runtime.ledger().bytes(mine), bytes * (kDevices - 1) / kDevices) << mt::name(kind);
    EXPECT_EQ(runtime.ledger().wire(mine), bytes * (p - 1) / p) << mt::name(kind);
  }
  EXPECT_EQ(runtime.ledger().entries().size(), 2u);
}

TEST_F(LedgerOfProcesses, MeshesSpreadOverTheProcesses) {
  const auto mesh = runtime.make_mesh({{"dp", 4}});
  EXPECT_EQ(runtime.communicator().addressable(mesh).size(), static_cast<std::size_t>(4 / p));
  if (p == 1) return;
  EXPECT_THROW(runtime.make_mesh({{"dp", 1}}), mt::Error);
}

}  // namespace
