// SPDX-License-Identifier: Apache-2.0
//
// The leaves of a call's arguments. Internal to local_map.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include <meshtorch/tensor/constrain.h>
#include <meshtorch/train/local_map_program.h>
#include <meshtorch/train/rank.h>

namespace meshtorch {

// An argument's leaf on the whole mesh, as the ranks have it.
struct LaidOut {
  at::Tensor tensor;  // perhaps a module's: not to be looked at while ranks run
  Shape shape;
  Layout manual, layout;
  Shards locals;
  // constrain.h: as ranks of several devices have it, by the automatic axes; null: none.
  std::shared_ptr<const Constraint> constraint;
  bool needs_gradient = false;
};

// Each leaf along the manual axes as its spec says. Throws Error with its path.
std::vector<LaidOut> lay_out_all(const RankGrid& grid, const std::vector<RankLeaf>& arguments);

// A tensor that is several leaves (tied weights) is one to the rank, too: for each leaf, the first that it
// is one with. Throws Error where a module's is to lie in two ways.
std::vector<std::size_t> firsts_of(const std::vector<RankLeaf>& leaves);

}  // namespace meshtorch
