// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/train/rank_streams.h>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>

#include <mutex>

#include <meshtorch/comm/distributed/digest.h>

namespace meshtorch {

RankStreams::RankStreams(const std::vector<std::uint64_t>& seeds)
    : generator_(at::globalContext().defaultGenerator(at::kCPU)), outer_(now()) {
  for (const std::uint64_t seed : seeds)
    ranks_.push_back({.generator = at::detail::createCPUGenerator(seed).get_state(),
                      .runtime = {.seed = seed, .draws = 0}});
}

RankStreams::~RankStreams() { set(outer_); }

RankStreams::Place RankStreams::now() {
  const std::lock_guard lock(generator_.mutex());
  return {.generator = generator_.get_state(), .runtime = Runtime::current().random()};
}

void RankStreams::set(const Place& place) {
  const std::lock_guard lock(generator_.mutex());
  generator_.set_state(place.generator);
  Runtime::current().random() = place.runtime;
}

void RankStreams::enter(std::size_t rank) { set(ranks_[rank]); }

void RankStreams::leave(std::size_t rank) { ranks_[rank] = now(); }

std::uint64_t stream_seed(std::uint64_t seed, std::uint64_t number, std::uint64_t place) {
  return mix(mix(mix(0x6c6f63616c6d6170u, seed), number), place);
}

}  // namespace meshtorch
