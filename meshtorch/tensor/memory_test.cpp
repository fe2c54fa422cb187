// SPDX-License-Identifier: Apache-2.0
//
// Every number is the arithmetic of the tensors that are made: elements times bytes.
#include <meshtorch/tensor/memory.h>

#include <atomic>
#include <functional>
#include <numeric>
#include <optional>
#include <thread>

#include <c10/core/CPUAllocator.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <meshtorch/tensor/device_scope.h>
#include <meshtorch/tensor/runtime.h>
#include <meshtorch/tensor/sharding.h>
#include <meshtorch/tensor/testing.h>

namespace meshtorch {
namespace {

using testing::ElementsAre;

constexpr std::int64_t kHost = MemoryAccount::kHost;

at::Tensor bytes(std::int64_t count) { return torch::empty({count}, torch::kUInt8); }

at::Tensor bytes(std::int64_t count, std::int64_t device, Use use) {
  const device_scope on(device);
  const use_scope as(use);
  return bytes(count);
}

std::int64_t sum(const UseBytes& live) {
  return std::accumulate(live.begin(), live.end(), std::int64_t{0});
}

TEST(Memory, ATensorIsItsElementsOnTheDeviceAndForTheUseOfItsScopes) {
  MemoryAccount account(2);
  auto host = torch::empty({10, 3}, torch::kFloat64);
  auto weight = [] {
    const device_scope on(1);
    const use_scope as(Use::parameters);
    return torch::zeros({5, 7});
  }();
  EXPECT_EQ(account.live(kHost, Use::activations), 10 * 3 * 8);
  EXPECT_EQ(account.live(1, Use::parameters), 5 * 7 * 4);
  EXPECT_EQ(account.live(1), 5 * 7 * 4);
  EXPECT_EQ(account.live(0), 0);
  host.reset();
  weight.reset();
  EXPECT_EQ(account.live(kHost), 0);
  EXPECT_EQ(account.live(1), 0);
  EXPECT_EQ(account.peak(kHost), 240);
  EXPECT_EQ(account.peak(1), 140);
}

TEST(Memory, ScopesNestAndComeBack) {
  EXPECT_EQ(use_scope::current(), Use::activations);
  {
    const use_scope outer(Use::gradients);
    {
      const use_scope inner(Use::communication);
      EXPECT_EQ(use_scope::current(), Use::communication);
    }
    EXPECT_EQ(use_scope::current(), Use::gradients);
  }
  EXPECT_EQ(use_scope::current(), Use::activations);
}

TEST(Memory, ANumberThatIsNoDeviceOfTheAccountIsTheHost) {
  MemoryAccount account(2);
  const auto x = bytes(10, 2, Use::gradients);
  EXPECT_EQ(account.live(kHost, Use::gradients), 10);
}

TEST(Memory, ViewsDoNotCountCopiesDo) {
  MemoryAccount account(1);
  auto x = bytes(100, 0, Use::activations);
  const auto view = x.view({10, 10}).t().slice(0, 2, 5);
  EXPECT_EQ(account.live(0), 100);
  EXPECT_EQ(account.live(kHost), 0);
  x.reset();
  EXPECT_EQ(account.live(0), 100);  // the view holds the block, all of it
  const auto copy = view.contiguous();
  EXPECT_EQ(account.live(kHost), 30);
}

TEST(Memory, AResizedStorageIsItsNewBlock) {
  MemoryAccount account(1);
  const device_scope on(0);
  auto x = bytes(100);
  x.resize_({250});
  EXPECT_EQ(account.live(0), 250);
  EXPECT_EQ(account.peak(0), 350);  // both while it is copied
}

TEST(Memory, AssignMovesTheWholeBlock) {
  MemoryAccount account(2);
  const auto x = bytes(100);
  account.assign(x.slice(0, 90, 95), 0, Use::gradients);
  EXPECT_EQ(account.live(kHost), 0);
  EXPECT_EQ(account.live(0, Use::gradients), 100);
  account.assign(x, 0, Use::optimizer);
  EXPECT_EQ(account.live(0, Use::gradients), 0);
  EXPECT_EQ(account.live(0, Use::optimizer), 100);
  EXPECT_EQ(account.live(0), 100);
  EXPECT_EQ(account.peak(0), 100);
  EXPECT_EQ(account.at_peak(0, Use::optimizer), 100);  // not what it was for when it came
  account.assign(x, kHost, Use::activations);
  EXPECT_EQ(account.live(0), 0);
}

TEST(Memory, AssignIgnoresWhatHasNoBlockHere) {
  const auto older = bytes(100);
  MemoryAccount account(1);
  float value = 1;
  account.assign(older, 0, Use::parameters);
  account.assign(at::Tensor(), 0, Use::parameters);
  account.assign(bytes(0), 0, Use::parameters);
  account.assign(torch::empty({7}, torch::kMeta), 0, Use::parameters);
  account.assign(torch::from_blob(&value, {1}), 0, Use::parameters);
  EXPECT_EQ(account.live(0), 0);
  EXPECT_EQ(account.peak(0), 0);
}

TEST(Memory, PeaksOfAKnownSequence) {
  MemoryAccount account(1);
  const auto parameters = bytes(1000, 0, Use::parameters);
  auto activations = bytes(500, 0, Use::activations);
  auto buffer = bytes(300, 0, Use::communication);
  buffer.reset();
  const auto gradients = bytes(200, 0, Use::gradients);
  activations.reset();
  const auto state = bytes(250, 0, Use::optimizer);
  EXPECT_EQ(account.live(0), 1000 + 200 + 250);
  EXPECT_EQ(account.peak(0), 1000 + 500 + 300);
  EXPECT_EQ(account.at_peak(0, Use::communication), 300);
  EXPECT_EQ(account.at_peak(0, Use::gradients), 0);
  EXPECT_EQ(account.peak(0, Use::gradients), 200);
  EXPECT_EQ(account.peak(0, Use::activations), 500);

  account.reset_peaks();
  EXPECT_EQ(account.peak(0), 1450);
  EXPECT_EQ(account.at_peak(0, Use::gradients), 200);
  EXPECT_EQ(account.peak(0, Use::activations), 0);
  EXPECT_EQ(account.peak(0, Use::communication), 0);
}

TEST(Memory, BlocksMayOutliveTheirAccountAndBeFreedUnderTheNext) {
  auto account = std::make_optional<MemoryAccount>(1);
  auto first = bytes(100, 0, Use::parameters);
  auto second = bytes(50, 0, Use::parameters);
  account.reset();
  EXPECT_EQ(MemoryAccount::active(), nullptr);
  first.reset();
  const auto between = bytes(70, 0, Use::parameters);
  account.emplace(1);
  EXPECT_EQ(MemoryAccount::active(), &*account);
  EXPECT_EQ(account->live(0), 0);
  second.reset();
  EXPECT_EQ(account->live(0), 0);
  account->assign(between, 0, Use::parameters);
  EXPECT_EQ(account->live(0), 0);
  const auto third = bytes(20, 0, Use::parameters);
  EXPECT_EQ(account->live(0), 20);
  EXPECT_EQ(account->peak(0), 20);
}

TEST(Memory, ThreadsHaveTheirOwnScopesAndAnyThreadMayFree) {
  MemoryAccount account(2);
  const device_scope on(0);
  at::Tensor on_one, on_none;
  std::thread([&] {
    on_none = bytes(30);
    on_one = bytes(70, 1, Use::gradients);
  }).join();
  EXPECT_EQ(account.live(0), 0);
  EXPECT_EQ(account.live(kHost, Use::activations), 30);
  EXPECT_EQ(account.live(1, Use::gradients), 70);
  on_one.reset();
  EXPECT_EQ(account.live(1), 0);
}

TEST(Memory, ManyThreadsAtOnceLeaveNothingBehind) {
  constexpr std::int64_t kThreads = 4;
  MemoryAccount account(kThreads);
  std::vector<std::thread> threads;
  for (std::int64_t device = 0; device < kThreads; ++device) {
    threads.emplace_back([&account, device] {
      for (std::int64_t step = 0; step < 500; ++step) {
        const auto kept = bytes(1000 + device, device, Use::activations);
        const auto moved = bytes(100, device, Use::activations);
        account.assign(moved, (device + 1) % kThreads, Use::communication);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (std::int64_t device = 0; device < kThreads; ++device) {
    EXPECT_EQ(account.live(device), 0);
    EXPECT_EQ(account.peak(device, Use::activations), 1000 + device + 100);
    EXPECT_EQ(account.peak(device, Use::communication), 100);
  }
}

TEST(Memory, AnAccountMayEndWhileOtherThreadsAllocate) {
  auto account = std::make_optional<MemoryAccount>(1);
  std::atomic<bool> stop{false};
  std::thread other([&] {
    while (!stop) bytes(64, 0, Use::activations);
  });
  for (int i = 0; i < 200; ++i) {
    account.reset();
    account.emplace(1);
  }
  stop = true;
  other.join();
  EXPECT_EQ(account->live(0), 0);
  EXPECT_LE(account->peak(0), 64);
}

TEST(Memory, RawBlocksCountToo) {
  MemoryAccount account(1);
  const device_scope on(0);
  at::Allocator& allocator = *c10::GetCPUAllocator();
  void* block = allocator.raw_allocate(96);
  EXPECT_EQ(account.live(0), 96);
  allocator.raw_deallocate(block);
  EXPECT_EQ(account.live(0), 0);
}

TEST(Memory, TheTimelineHasTheTopOfEachClimbAndTheMarks) {
  MemoryAccount account(1);
  const auto a = bytes(100, 0, Use::parameters);
  auto b = bytes(10, 0, Use::activations);
  b.reset();                          // a climb to 110
  b = bytes(5, 0, Use::activations);  // 105: no new maximum
  account.mark("step 1");
  const auto c = bytes(50, 0, Use::gradients);  // climbs to 155 and on
  const auto d = bytes(7, 0, Use::optimizer);
  std::vector<MemorySample> samples;
  for (const MemorySample& sample : account.timeline()) {
    if (sample.device == 0) samples.push_back(sample);
  }
  ASSERT_EQ(samples.size(), 3);
  EXPECT_THAT(samples[0].live, ElementsAre(100, 0, 0, 10, 0));
  EXPECT_EQ(samples[0].mark, "");
  EXPECT_THAT(samples[1].live, ElementsAre(100, 0, 0, 5, 0));
  EXPECT_EQ(samples[1].mark, "step 1");
  EXPECT_THAT(samples[2].live, ElementsAre(100, 50, 7, 5, 0));
  EXPECT_LE(samples[0].time, samples[1].time);
  EXPECT_LE(samples[1].time, samples[2].time);
}

TEST(Memory, AssignWithinADeviceIsNoEndOfAClimb) {
  MemoryAccount account(1);
  const auto a = bytes(100, 0, Use::activations);
  account.assign(a, 0, Use::parameters);
  const auto b = bytes(10, 0, Use::activations);
  const auto samples = account.timeline();
  ASSERT_EQ(samples.size(), 1);
  EXPECT_THAT(samples[0].live, ElementsAre(100, 0, 0, 10, 0));
}

TEST(Memory, TheTimelineIsInOrderOfTimeOverDevices) {
  MemoryAccount account(2);
  auto a = bytes(10, 0, Use::activations);
  auto b = bytes(20, 1, Use::activations);
  b.reset();  // kept before the climb of device 0, which was first
  a.reset();
  std::vector<std::int64_t> totals;
  for (const MemorySample& sample : account.timeline()) totals.push_back(sum(sample.live));
  EXPECT_THAT(totals, ElementsAre(10, 20));
}

TEST(Memory, TheTimelineKeepsTheLatest) {
  MemoryAccount account(1, 4);
  for (int step = 0; step < 10; ++step) account.mark(std::to_string(step));  // host and device
  const auto samples = account.timeline();
  ASSERT_EQ(samples.size(), 4);
  EXPECT_EQ(samples.front().mark, "8");
  EXPECT_EQ(samples.back().mark, "9");
  EXPECT_EQ(account.dropped_samples(), 2 * 10 - 4);
}

TEST(Memory, TheTable) {
  MemoryAccount account(5);
  std::vector<at::Tensor> kept;
  for (std::int64_t device = 0; device < 4; ++device) {
    kept.push_back(bytes(400, device, Use::parameters));
    kept.push_back(bytes(800, device, Use::optimizer));
    bytes(128, device, Use::communication);
    const auto buffer = bytes(64, device, Use::communication);
    bytes(1024, device, Use::activations);
    kept.push_back(bytes(400, device, Use::gradients));
  }
  kept.push_back(bytes(8, 3, Use::gradients));
  EXPECT_EQ(account.to_string(),
            "device           parameters  gradients  optimizer  activations  communication  total\n"
            "------  -------  ----------  ---------  ---------  -----------  -------------  -----\n"
            "0-2     live            400        400        800            0              0  1,600\n"
            "        at peak         400          0        800        1,024             64  2,288\n"
            "        largest         400        400        800        1,024            128\n"
            "3       live            400        408        800            0              0  1,608\n"
            "        at peak         400          0        800        1,024             64  2,288\n"
            "        largest         400        408        800        1,024            128\n");
}

// Without fusing or recomputing, a linear layer's gradients are as large as it, and AdamW keeps two
// moments of each parameter.
TEST(Memory, AStepOfAPlainLayer) {
  MemoryAccount account(1);
  const device_scope on(0);
  constexpr std::int64_t kParameters = (64 * 32 + 32) * 4;
  auto layer = [] {
    const use_scope as(Use::parameters);
    return torch::nn::Linear(64, 32);
  }();
  const auto input = torch::ones({16, 64});
  EXPECT_EQ(account.live(0, Use::parameters), kParameters);
  EXPECT_EQ(account.live(0, Use::activations), 16 * 64 * 4);
  torch::optim::AdamW optimizer(layer->parameters());
  {
    const auto loss = layer(input).sum();
    const use_scope as(Use::gradients);
    loss.backward();
  }
  EXPECT_EQ(account.live(0, Use::gradients), kParameters);
  EXPECT_EQ(account.live(0, Use::activations), 16 * 64 * 4);
  {
    const use_scope as(Use::optimizer);
    optimizer.step();
  }
  EXPECT_EQ(account.live(0, Use::optimizer), 2 * kParameters);
  EXPECT_EQ(account.live(0), 4 * kParameters + 16 * 64 * 4);
  EXPECT_EQ(account.live(kHost), 0);
}

TEST(Memory, AShardedTensorIsItsShards) {
  Runtime runtime({.devices = 8});
  const Mesh mesh = runtime.make_mesh({{"dp", 4}, {"tp", 2}});
  MemoryAccount account(8);
  const auto dense = torch::ones({10, 6});
  auto x = device_put(dense, {mesh, P("dp", "tp")});  // 10 over 4: chunks of 3, 3, 3, 1
  for (const Shard& shard : addressable_shards(x)) {
    account.assign(shard.data, shard.device, Use::parameters);
  }
  for (std::int64_t device = 0; device < 8; ++device) {
    EXPECT_EQ(account.live(device, Use::parameters), (device < 6 ? 3 : 1) * 3 * 4) << device;
  }
  EXPECT_EQ(account.live(kHost), 10 * 6 * 4);
  x.reset();
  for (std::int64_t device = 0; device < 8; ++device) EXPECT_EQ(account.live(device), 0);
}

TEST(Memory, Messages) {
  EXPECT_EQ(
      message([] { MemoryAccount account(0); }),
      "[MemoryAccount] devices: got 0, expected at least 1; give the number of devices of all "
      "processes");
  MemoryAccount account(2);
  EXPECT_EQ(message([] { MemoryAccount second(2); }),
            "[MemoryAccount] an account is active already, expected none; use "
            "MemoryAccount::active(), or end that one first");
  const auto x = bytes(4);
  for (const auto& call : std::vector<std::function<void()>>{
           [&] { account.live(2); }, [&] { account.peak(2, Use::gradients); },
           [&] { account.at_peak(2, Use::gradients); },
           [&] { account.assign(x, 2, Use::gradients); }}) {
    EXPECT_EQ(message(call),
              "[MemoryAccount] device: got 2, expected one of 2; give a global device number, or "
              "MemoryAccount::kHost");
  }
  EXPECT_EQ(account.live(kHost), 4);
}

// An allocator that takes the place of the account's: nothing would be counted.
TEST(Memory, AnAllocatorThatWasSetLaterIsAnError) {
  { MemoryAccount account(1); }
  at::Allocator* counting = c10::GetCPUAllocator();
  c10::SetCPUAllocator(c10::GetDefaultCPUAllocator());
  EXPECT_EQ(message([] { MemoryAccount account(1); }),
            "[MemoryAccount] CPU allocator: another one was set after the first account; call "
            "c10::SetCPUAllocator before the first account is made");
  EXPECT_EQ(MemoryAccount::active(), nullptr);
  c10::SetCPUAllocator(counting);
  MemoryAccount account(1);
  const auto x = bytes(3, 0, Use::activations);
  EXPECT_EQ(account.live(0), 3);
}

}  // namespace
}  // namespace meshtorch
