// SPDX-License-Identifier: Apache-2.0
//
// What `meshtorch train` tells about a run, as text.
#pragma once

#include <optional>
#include <string>

#include <meshtorch/cli/formula.h>
#include <meshtorch/cli/step.h>
#include <meshtorch/comm/ledger.h>
#include <meshtorch/mesh/mesh.h>

namespace meshtorch {

// Which device is where: a line for every place along all axes but the last.
std::string mesh_grid(const Mesh& mesh);

// Bytes of the optimizer's state: of the device that holds most, and of one device that held all.
struct StateBytes {
  std::int64_t per_device = 0;
  std::int64_t unsharded = 0;
};
StateBytes state_bytes(const torch::optim::AdamW& optimizer);

// What a step is to communicate, beside numbers (norm, loss).
struct Expected {
  Schedule zero;  // from right before the step
  // Of all microbatches together; nothing: the formula is not for this shape.
  std::optional<TensorParallelTraffic> tensor_parallel;
};

// One step's ledger beside what was expected: count and bytes of each kind of collective and their
// ratio; what went over dp in units of the least that can; how many collectives over dp fall inside
// the microbatch loop.
std::string ledger_report(const Ledger& ledger, const Expected& expected);

}  // namespace meshtorch
