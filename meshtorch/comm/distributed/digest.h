// SPDX-License-Identifier: Apache-2.0
//
// 64-bit digests that tell processes apart that differ: not for adversaries. The mixing step is the
// finalizer of splitmix64 (Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators").
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include <ATen/core/Tensor.h>

namespace meshtorch {

constexpr std::uint64_t mix(std::uint64_t digest, std::uint64_t value) {
  std::uint64_t x = (digest ^ value) + 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

std::uint64_t hash(const void* data, std::size_t bytes);
inline std::uint64_t hash(std::string_view text) { return hash(text.data(), text.size()); }

// Of the elements in row-major order, bit by bit, whatever the strides; of a plain CPU tensor.
std::uint64_t checksum(const at::Tensor& tensor);

}  // namespace meshtorch
