// SPDX-License-Identifier: Apache-2.0
//
// Random numbers of ranks that take turns: each rank draws from streams of its own - of libtorch's CPU
// generator for plain tensors, of the runtime's counter for sharded ones - and the program's own are
// where they were when all is over. Internal to local_map.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <meshtorch/tensor/runtime.h>

namespace meshtorch {

class RankStreams {
 public:
  // One seed a rank.
  explicit RankStreams(const std::vector<std::uint64_t>& seeds);
  ~RankStreams();  // the program's again
  RankStreams(const RankStreams&) = delete;
  RankStreams& operator=(const RankStreams&) = delete;

  void enter(std::size_t rank);
  void leave(std::size_t rank);

 private:
  struct Place {
    at::Tensor generator;
    Runtime::RandomState runtime;
  };
  Place now();
  void set(const Place& place);

  at::Generator generator_;
  std::vector<Place> ranks_;
  Place outer_;
};

// The seed of a stream: a function of the runtime's seed, a number that no other stream of the program
// has, and a rank's place among all ranks.
std::uint64_t stream_seed(std::uint64_t seed, std::uint64_t number, std::uint64_t place);

}  // namespace meshtorch
