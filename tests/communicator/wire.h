// SPDX-License-Identifier: Apache-2.0
//
// The bytes that a process sends to others, by the formulas of comm/distributed/collectives.h, counted
// from the inputs and from which process holds which position.
#pragma once

#include <optional>

#include "expected.h"

namespace meshtorch::suite {

struct Bounds {
  std::int64_t least = 0, most = 0;
};

// Equal bounds but where an all-reduce cuts a sum unevenly, or where replicas share the sending of a
// permute.
Bounds expected_wire(const Case& test, std::int64_t devices_per_process, int process);

}  // namespace meshtorch::suite
