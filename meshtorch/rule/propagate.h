// SPDX-License-Identifier: Apache-2.0
//
// From a rule and the layouts that the operands have: the layouts they must have, and those of the
// results. For every mesh axis that some operand uses, one of the rule's ways to use it is taken:
//
//   shard a factor   operands with the factor are sharded on it, those without are whole; outputs
//                    without it come out unreduced (joint operands without it then count once)
//   pass             one operand of `each` (or all of `joint`) stays unreduced, and so do the outputs
//   replicate        everything whole
//
// The way that costs the fewest bytes wins: moving operands now plus reducing unreduced results later.
// Slicing is free. The results of a factor whose operands lie on it already, or need only be sliced,
// are not charged: reducing them is the price of the layout that someone chose, and it may be paid
// once for many (gradients). Without that, a large activation would be cheaper to scatter and its
// weight cheaper to gather than a Megatron layer's one all-reduce, and gradients would not come out
// unreduced. Ties prefer fewer redundant flops, then fewer changes of layout, then reducing an operand
// now over spreading a replicated one, then the factor named first.
//
// An axis that no operand uses stays unused, and one along which operands are only unreduced shards
// nothing: nothing is sharded that nobody sharded. For the same reason, where an op that is linear in some operand
// alone has one that is unreduced along an axis and another that is sharded, only factors that are sharded count.
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
  // More will be added to the result: where it costs the same, an unreduced summand stays so and the whole
  // ones are spread, so that one reduction serves all.
  bool accumulates = false;
};

// Operands that are absent in the rule are nullopt. With a pinned operand the result is nullopt where
// no way of the rule keeps its layout (the caller then computes aside and copies back).
std::optional<Placement> propagate(const OpRule& rule, const Mesh& mesh,
                                   const std::vector<std::optional<Operand>>& operands,
                                   const PropagateOptions& options = {});

}  // namespace meshtorch
