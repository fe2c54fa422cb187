// SPDX-License-Identifier: Apache-2.0
//
// Is the validator worth anything? Wrong rules, one factor or one mark at a time, must make it fail.
//
//   a whole dim is sharded through, or contracts     where halving the loop gives no local answer
//   an operand is linear                             where plain libtorch is not
//   an output's sharded dim is claimed to be whole
//   a contraction is claimed to be complete          where the halves' results differ
//
// A change that plain libtorch shows to be right (discovery.h), and one that never leads to another layout
// because its way is never the cheapest, is equivalent and not tried; so is one
// that the op's own kernel survives, because it sums over the axis itself.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "case.h"

namespace meshtorch::conformance {

struct SabotageTally {
  std::int64_t detected = 0;
  std::int64_t equivalent = 0;
  std::int64_t survived = 0;
};

// Of every `every`-th op. Each survivor, detected by no case of its op, is printed.
SabotageTally run_sabotage(const std::vector<Case>& cases, std::size_t every, bool verbose,
                           std::ostream& out);

}  // namespace meshtorch::conformance
