// SPDX-License-Identifier: Apache-2.0
//
// local_map in autograd: one node for the call, which holds the graphs that its ranks recorded and runs
// them, rank by rank, in backward. Internal to local_map.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/node.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <meshtorch/layout/layout.h>
#include <meshtorch/train/rank.h>
#include <meshtorch/train/rank_bindings.h>

namespace meshtorch {

// What one rank recorded.
struct RankGraph {
  at::Tensor anchor;                   // rank.h
  torch::autograd::edge_list results;  // by the node's results; invalid: no gradient
  torch::autograd::edge_list leaves;   // by the node's inputs; as well
  std::vector<at::Tensor> strangers;   // leaves that are neither arguments nor, perhaps, fn's own
};

// Takes the graph of what fn gave in this thread since `recording` was made. Throws Error where it leads
// out of fn by other ways than its leaves.
class Recording;
RankGraph take_graph(const Recording& recording, const RankPlace& place,
                     const std::vector<at::Tensor>& leaves, const at::Tensor& anchor,
                     const std::vector<at::Tensor>& results);

// How an input or a result of the call lies.
struct RankSide {
  Shape shape;
  Layout manual;
  at::TensorOptions options = {};  // of an input's parts
};

struct RankHistory {
  std::shared_ptr<const RankGrid> grid;
  std::vector<RankGraph> graphs;  // by rank
  std::shared_ptr<RankBindings> bindings;
  std::vector<RankSide> inputs, results;
  std::vector<at::Tensor> read;      // whose memory the graphs may refer to
  std::vector<std::uint64_t> seeds;  // of random numbers that backward draws
};

// Makes the results what the ranks' graphs computed of the inputs: both on the whole mesh, in the order of
// `history`. Throws Error where a leaf from outside is in the graphs of several ranks.
void set_history(const std::vector<at::Tensor>& results, const std::vector<at::Tensor>& inputs,
                 RankHistory history);

}  // namespace meshtorch
