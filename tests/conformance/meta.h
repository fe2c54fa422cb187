// SPDX-License-Identifier: Apache-2.0
//
// The dry run of a call: the same operands without values.
#pragma once

#include <string>
#include <vector>

#include <meshtorch/comm/ledger.h>

#include "runner.h"

namespace meshtorch::conformance {

// Meta shards in the layouts of these operands; plain ones as they are.
Tensors without_values(const Tensors& operands);

// Runs the call on operands without values. The results must have the sizes, types and layouts of those
// with values, and the ledger the same entries; what is wrong with them, empty where nothing is. An op
// that needs values must say so.
std::vector<std::string> check_meta(const Scene& scene, const Tensors& operands,
                                    const Tensors& real_outputs,
                                    const std::vector<LedgerEntry>& real_ledger);

}  // namespace meshtorch::conformance
