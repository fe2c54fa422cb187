// SPDX-License-Identifier: Apache-2.0
//
// The fixed tree of a sum (communicator.h), cut where it crosses processes: a leaf is a largest subtree
// whose members one process holds. It combines those in memory and sends one tensor for all of them.
#pragma once

#include <meshtorch/comm/combine.h>
#include <meshtorch/comm/distributed/route.h>

namespace meshtorch {

struct Subtree {
  int process = 0;
  std::size_t begin = 0, end = 0;  // ranks
};

// In rank order.
std::vector<Subtree> leaves_of(const GroupRoute& group);

// This process's part: the combined inputs of the leaf's members; an input itself where there is one.
at::Tensor combine_leaf(const GroupRoute& group, const Subtree& leaf, const Shards& shards,
                        Reduction reduction);

// The rest of the tree, from one value for each of two or more leaves, into `out`.
void combine_leaves(at::Tensor& out, const GroupRoute& group, const Shards& values,
                    Reduction reduction);

}  // namespace meshtorch
