// SPDX-License-Identifier: Apache-2.0
//
// The collectives over several processes. What one process holds of a group is combined, packed or
// copied in its memory; between two processes there is one message each way for each round.
//
// Bytes that a process sends, for a group of N bytes (of one input; all_gather: of the result) over q
// processes, where each holds a subtree of the sum (any block of 2^i neighbours does):
//
//   all_reduce      2 (q-1)/q N in two rounds: scatter the sum, gather it; (q-1) N in one round
//                   where N is below kDirectBytes
//   reduce_scatter  (q-1)/q N
//   all_gather      (q-1)/q N       (its own part to each other process)
//   all_to_all      what its members owe to members elsewhere
//   broadcast       (q-1) N from the root's process
//   permute         as all_to_all
//
// These are the bounds of Thakur, Rabenseifner, Gropp 2005, "Optimization of collective communication
// operations in MPICH", in q-1 messages: for tens of processes, not for thousands.
#pragma once

#include <meshtorch/comm/distributed/route.h>
#include <meshtorch/comm/distributed/session.h>

namespace meshtorch {

inline constexpr std::int64_t kDirectBytes = 16 << 10;

struct CollectiveResult {
  Shards shards;
  std::int64_t wire_bytes = 0;
};

// `shards` are the inputs of this process.
CollectiveResult run_collective(Session& session, const Ticket& ticket,
                                const DevicePlacement& placement, int process,
                                const Request& request, const Shards& shards);

}  // namespace meshtorch
