// SPDX-License-Identifier: Apache-2.0
//
// The placements that a rule names itself: every operand of a factor sharded on it, or one linear
// operand unreduced. There nothing may be gathered, and where the results lie is known beforehand.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <meshtorch/rule/op_rule.h>

#include "placing.h"

namespace meshtorch::conformance {

struct Consistent {
  std::string why;  // "factor a on axis x"
  Placing placing;
  // Per output of the rule; nullopt: reducing it at once may be cheaper.
  std::vector<std::optional<Layout>> outputs;
};

// For one-dimensional meshes each factor and each linear operand, for others pairs of them.
std::vector<Consistent> consistent_placings(const OpRule& rule, const Mesh& mesh,
                                            const Tensors& operands);

// The rule of the call, by the runtime's registry; nullopt where there is none. Throws what the rule
// throws.
std::optional<OpRule> bound_rule(const Instance& instance, const Tensors& operands);

}  // namespace meshtorch::conformance
