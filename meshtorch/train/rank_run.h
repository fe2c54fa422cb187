// SPDX-License-Identifier: Apache-2.0
//
// Running something on all ranks. A rank's thread has what the calling thread has - grad mode and all else of
// libtorch's that is a thread's own, autocast, the scope, the Mode, the use of memory - and, of its own, the
// device it works for and its streams of random numbers. Internal to local_map.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <meshtorch/train/rank.h>
#include <meshtorch/train/rank_bindings.h>

namespace meshtorch {

// Runs body(rank, turns) in each rank's thread (rank_turns.h); the ranks' collectives are served here. A
// rank's turns are slices of its device's lane in the trace, named `op`.
void run_ranks(const std::string& op, const RankGrid& grid, const std::vector<std::uint64_t>& seeds,
               RankBindings& bindings,
               const std::function<void(std::size_t rank, RankTurns& turns)>& body);

// While fn runs: an op on a sharded tensor that is not on the rank's own mesh is an Error, as it comes
// from outside of local_map.
class stranger_watch {
 public:
  explicit stranger_watch(const RankPlace& place);
  ~stranger_watch();
  stranger_watch(const stranger_watch&) = delete;
  stranger_watch& operator=(const stranger_watch&) = delete;

 private:
  struct Watch;
  std::unique_ptr<Watch> watch_;
};

}  // namespace meshtorch
