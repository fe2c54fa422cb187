// SPDX-License-Identifier: Apache-2.0
//
// Random numbers for data order, a pure function of (seed, counter): no state to save, none to
// share. The mixer is SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number
// generators", 2014). The random ops of tensors are another matter and have their own generator.
#pragma once

#include <cstdint>

namespace meshtorch {

constexpr std::uint64_t mix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// 64 uniform bits.
constexpr std::uint64_t counter_bits(std::uint64_t seed, std::uint64_t counter) {
  return mix(mix(seed + 0x9e3779b97f4a7c15u) + (counter + 1) * 0x9e3779b97f4a7c15u);
}

// Uniform in [0, n), for n >= 1 (to one part in 2^64 / n: no rejection, every counter gives a
// value).
constexpr std::int64_t counter_below(std::uint64_t seed, std::uint64_t counter, std::int64_t n) {
  using Wide = unsigned __int128;
  return static_cast<std::int64_t>(
      (static_cast<Wide>(counter_bits(seed, counter)) * static_cast<Wide>(n)) >> 64);
}

}  // namespace meshtorch
