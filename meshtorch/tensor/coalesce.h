// SPDX-License-Identifier: Apache-2.0
//
// Redistributing many tensors at once: every tensor follows its own plan, and steps of the same kind
// over the same axes run as one collective on one flat buffer.
#pragma once

#include <vector>

#include <meshtorch/tensor/redistribute.h>

namespace meshtorch {

struct Move {
  Shape shape;
  Layout from;
  Layout to;
  Shards locals;  // replaced by the results
  // Where the results may be written, one for each local, of the shape and dtype that `to` gives them;
  // empty: nowhere. Results that were written there are these very tensors.
  Shards into = {};
};

// All on one mesh. Results share memory with the inputs only where nothing had to change.
void redistribute_all(const Mesh& mesh, std::vector<Move>& moves, const Cause& cause);

}  // namespace meshtorch
