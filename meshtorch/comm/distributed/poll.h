// SPDX-License-Identifier: Apache-2.0
//
// Waiting for other processes: at first with the core, then offering it to others, then with pauses.
#pragma once

#include <chrono>
#include <functional>
#include <thread>

namespace meshtorch {

// How long a waiting thread sleeps at a time, once it does.
inline constexpr auto kPollPause = std::chrono::microseconds(200);

// Returns when done() is true. `spins`: polls before the core is offered. Calls `idle` every now and then;
// what that, or done, throws ends the waiting.
template <class Done>
void poll_until(Done done, int spins, const std::function<void()>& idle) {
  constexpr int kPollsPerIdle = 32;
  constexpr auto kSpinFor = std::chrono::seconds(1);
  const auto begin = std::chrono::steady_clock::now();
  for (int polls = 1; !done(); ++polls) {
    if (polls % kPollsPerIdle == 0) idle();
    if (polls < spins) continue;
    if (std::chrono::steady_clock::now() - begin < kSpinFor) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kPollPause);
    }
  }
}

}  // namespace meshtorch
