// SPDX-License-Identifier: Apache-2.0
//
// Waiting for other processes. Where the program does nothing else: at first with the core, then offering
// it to others, then with pauses. Where it computes meanwhile: a look every now and then, as each is taken
// from the program's own core.
#pragma once

#include <chrono>
#include <functional>
#include <thread>

namespace meshtorch {

// How long a waiting thread sleeps at a time, once it does.
inline constexpr auto kPollPause = std::chrono::microseconds(200);
// Aside of a program that computes: polls at once, as what is there already takes a few; then the pause
// before each.
inline constexpr int kAsideSpins = 20;
inline constexpr auto kAsidePause = std::chrono::microseconds(30);

struct Waiting {
  std::function<void()> idle;     // called every now and then; what it throws ends the waiting
  std::function<bool()> awaited;  // whether the program waits too; it may begin to at any time
};

// Returns when done() is true, which may throw. `spins`: polls before the core is offered.
template <class Done>
void poll_until(Done done, int spins, const Waiting& waiting) {
  using Clock = std::chrono::steady_clock;
  constexpr int kPollsPerIdle = 32;
  constexpr auto kSpinFor = std::chrono::seconds(1);
  auto begin = Clock::now();
  int awaited = 0;  // polls since the program waits
  for (int polls = 1; !done(); ++polls) {
    if (polls % kPollsPerIdle == 0) waiting.idle();
    if (!waiting.awaited()) {
      if (polls > kAsideSpins) std::this_thread::sleep_for(kAsidePause);
      awaited = 0;
      continue;
    }
    if (++awaited == 1) begin = Clock::now();
    if (awaited < spins) continue;
    if (Clock::now() - begin < kSpinFor) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kPollPause);
    }
  }
}

}  // namespace meshtorch
