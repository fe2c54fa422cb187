// SPDX-License-Identifier: Apache-2.0
//
// One tensor of a tree, as the rules see it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <meshtorch/layout/layout.h>

namespace meshtorch {

// Dim `dim` of a tensor is `count` whole heads, one after the other: dim 0 of the weight of a query
// projection, dim 1 of that of the output projection. No device may get a part of one. 0: no heads.
//
//   {.pattern = "(q|k|v)\\.weight", .spec = P("tp"), .heads = 8}
//   {.pattern = "out\\.weight", .spec = P(whole, "tp"), .heads = {8, 1}}
struct Heads {
  constexpr Heads(std::int64_t count = 0, int dim = 0)
      : count(count), dim(dim) {}  // NOLINT: implicit

  std::int64_t count;
  int dim;
  friend bool operator==(const Heads&, const Heads&) = default;
};

struct Leaf {
  std::string path;
  Shape shape;
  std::int64_t item_size = 4;
  // Leaves with the same non-negative tie are one tensor under several paths.
  int tie = -1;
  // What the dims are called, for LogicalAxes; "-" for a dim without a name. Empty: not known.
  std::vector<std::string> names = {};
  Heads heads = {};
  // Not a parameter: where no rule decides it stays whole, in strict rule sets too, and no FsdpRule
  // shards it.
  bool buffer = false;
};

// What a rule says of a leaf.
struct SpecDecision {
  PartitionSpec spec;
  Heads heads = {};       // of the leaf itself where there are none
  std::string note = {};  // for the report
};

}  // namespace meshtorch
