// SPDX-License-Identifier: Apache-2.0
//
// What `meshtorch train` tells about a run, as text.
#pragma once

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
StateBytes state_bytes(Zero<torch::optim::AdamW>& optimizer);

// What the formulas say of a step of `microbatches` equal microbatches.
struct Expected {
  ZeroTraffic zero;
  TensorParallelTraffic tensor_parallel;  // all microbatches together
};

// One step's ledger beside the formulas: count and bytes of each kind of collective, their ratio,
// and how many collectives over dp fall inside the microbatch loop.
std::string ledger_report(const Ledger& ledger, const Expected& expected);

}  // namespace meshtorch
