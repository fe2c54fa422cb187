// SPDX-License-Identifier: Apache-2.0
//
// A part of libtorch's autograd graph: what one thread recorded since a moment, and the edges that lead
// out of it. Internal to remat.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/node.h>

namespace meshtorch {

class Recording {
 public:
  Recording();  // what this thread records from now on

  // Accumulators of leaves are never in it.
  bool has(const torch::autograd::Edge& edge) const;

  // Whether `output`'s gradient passes through what was computed in it. It does not where the output is
  // a tensor from outside or a view of one.
  bool computed(const at::Tensor& output) const;

  // Every edge that leads out of it, reachable from the gradients of these outputs, in an order that
  // the graph determines. Valid, and assignable, while the graph lives.
  std::vector<torch::autograd::Edge*> leaving(const std::vector<at::Tensor>& outputs) const;

 private:
  std::uint64_t begin_, thread_;
};

// Where an edge ends.
using EdgeEnd = std::pair<torch::autograd::Node*, std::uint32_t>;
inline EdgeEnd end_of(const torch::autograd::Edge& edge) {
  return {edge.function.get(), edge.input_nr};
}

// The first edge to each end.
torch::autograd::edge_list distinct(const std::vector<torch::autograd::Edge*>& edges);

// The leaf whose gradient arrives by this edge; null where it leads elsewhere.
const at::Tensor* leaf_of(const torch::autograd::Edge& edge);

}  // namespace meshtorch
