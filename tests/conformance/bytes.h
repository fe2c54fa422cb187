// SPDX-License-Identifier: Apache-2.0
//
// What a call may move, by closed formulas, against the ledger.
#pragma once

#include <string>
#include <vector>

#include "runner.h"

namespace meshtorch::conformance {

// Of the call that the ledger holds. Nothing where all operands are replicated; never more than gathering
// every operand whole (implied) and reducing the unreduced ones (without a kernel of the op's own); from
// a placing of the op's own rule nothing at all, but for its kernel.
std::vector<std::string> check_ledger(const Scene& scene, const Placing& placing,
                                      const Consistent* expected);

}  // namespace meshtorch::conformance
