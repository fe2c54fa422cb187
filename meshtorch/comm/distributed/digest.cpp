// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/comm/distributed/digest.h>

#include <ATen/ATen.h>

#include <array>
#include <cstring>

namespace meshtorch {

// Four lanes, so that one multiplication need not wait for the one before it.
std::uint64_t hash(const void* data, std::size_t bytes) {
  constexpr std::uint64_t kFactor = 0x9e3779b97f4a7c15u;
  std::array<std::uint64_t, 4> lanes{1, 2, 3, 4};
  const auto* at = static_cast<const unsigned char*>(data);
  std::size_t left = bytes;
  for (; left >= sizeof(lanes); at += sizeof(lanes), left -= sizeof(lanes)) {
    std::array<std::uint64_t, 4> words;
    std::memcpy(words.data(), at, sizeof(words));
    for (std::size_t i = 0; i < lanes.size(); ++i) {
      const std::uint64_t x = (lanes[i] ^ words[i]) * kFactor;
      lanes[i] = x ^ (x >> 32);
    }
  }
  std::array<std::uint64_t, 4> rest{};
  std::memcpy(rest.data(), at, left);
  std::uint64_t digest = bytes;
  for (std::size_t i = 0; i < lanes.size(); ++i) digest = mix(mix(digest, lanes[i]), rest[i]);
  return digest;
}

std::uint64_t checksum(const at::Tensor& tensor) {
  const at::Tensor dense = tensor.detach().resolve_conj().resolve_neg().contiguous();
  return mix(hash(dense.const_data_ptr(), dense.nbytes()),
             static_cast<std::uint64_t>(dense.scalar_type()));
}

}  // namespace meshtorch
