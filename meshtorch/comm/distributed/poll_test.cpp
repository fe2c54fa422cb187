// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/comm/distributed/poll.h>

#include <atomic>
#include <stdexcept>

#include <gtest/gtest.h>

namespace meshtorch {
namespace {

using Clock = std::chrono::steady_clock;

bool yes() { return true; }
bool no() { return false; }

TEST(PollUntil, LeavesTheCoreToAProgramThatComputes) {
  const auto begin = Clock::now();
  int polls = 0;
  poll_until([&] { return ++polls > kAsideSpins + 100; }, 1'000'000,
             {.idle = [] {}, .awaited = no});
  EXPECT_GE(Clock::now() - begin, 100 * kAsidePause);
}

// From then on as ever: with a pause before each poll it would take half a minute.
TEST(PollUntil, GoesFastOnceTheProgramWaits) {
  std::atomic<bool> waits = false;
  std::atomic<int> polls = 0;
  std::thread program([&] {
    while (polls < 200) std::this_thread::yield();
    waits = true;
  });
  const auto begin = Clock::now();
  poll_until([&] { return ++polls > 1'000'000; }, 2'000'000,
             {.idle = [] {}, .awaited = [&] { return waits.load(); }});
  EXPECT_LT(Clock::now() - begin, 1'000'000 * kAsidePause);
  program.join();
}

TEST(PollUntil, IdlesNowAndThenAndEndsByWhatItThrows) {
  for (const auto& awaited : {yes, no}) {
    int polls = 0, idles = 0;
    const auto give_up = [&] {
      if (++idles == 3) throw std::runtime_error("enough");
    };
    EXPECT_THROW(
        poll_until([&] { return ++polls == 1000; }, 10, {.idle = give_up, .awaited = awaited}),
        std::runtime_error);
    EXPECT_EQ(idles, 3);
    EXPECT_LT(polls, 1000);
  }
}

}  // namespace
}  // namespace meshtorch
