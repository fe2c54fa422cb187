// SPDX-License-Identifier: Apache-2.0
//
// From a rule and the layouts that the operands have: the layouts they must have, and those of the
// results. For every mesh axis one of the rule's ways to use it is taken - shard one factor, pass an
// unreduced operand through, or hold everything whole - the one that costs the fewest bytes (moving
// operands now plus reducing the results later); ties prefer fewer redundant flops, then reducing an
// operand now over spreading a replicated one, then the factor named first. Slicing is free. An axis
// that no operand uses stays unused: nothing is sharded that nobody sharded.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <meshtorch/rule/op_rule.h>

namespace meshtorch {

struct Operand {
  Shape shape;
  Layout layout;
  std::int64_t item_size = 4;
};

struct Placement {
  std::vector<Layout> operands;  // required; absent operands have an empty layout
  std::vector<Layout> outputs;
  std::int64_t bytes = 0;        // moved now, by the cost model
};

struct PropagateOptions {
  // This operand is written in place: its layout must stay what it is.
  std::optional<int> pinned;
};

// Operands that are absent in the rule are nullopt. With a pinned operand the result is nullopt where
// no way of the rule keeps its layout (the caller then computes aside and copies back).
std::optional<Placement> propagate(const OpRule& rule, const Mesh& mesh,
                                   const std::vector<std::optional<Operand>>& operands,
                                   const PropagateOptions& options = {});

}  // namespace meshtorch
