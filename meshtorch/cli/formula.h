// SPDX-License-Identifier: Apache-2.0
//
// What a training step must communicate, as closed formulas of shapes and specs: numbers to hold
// the ledger against. A ring over d devices moves, per device,
//
//   reduce-scatter, all-gather   (d-1)/d * n      of n bytes
//   all-reduce                  2(d-1)/d * n
//
// which is the least there is (Patarasuk and Yuan, 2009).
#pragma once

#include <cstdint>
#include <vector>

#include <meshtorch/mesh/mesh.h>
#include <meshtorch/models/gpt.h>
#include <meshtorch/tree/path_rules.h>

namespace meshtorch {

// Collectives of one kind; bytes are those one device sends.
struct Traffic {
  std::int64_t count = 0;
  std::int64_t bytes = 0;
  friend bool operator==(const Traffic&, const Traffic&) = default;
};

// ZeRO-1 over `axis`: gradients are reduce-scattered and parameters all-gathered, once a step and
// whatever the number of microbatches. Leaves without a dim that the axis divides stay whole and
// share one all-reduce.
struct ZeroTraffic {
  Traffic reduce_scatter, all_gather, all_reduce;
  std::int64_t whole_leaves = 0;
};
ZeroTraffic zero_traffic(const Mesh& mesh, const std::vector<Match>& leaves,
                         const std::string& axis);

// Megatron's tensor parallelism of a GPT over `axis` (Shoeybi et al., arXiv 1909.08053), of one
// microbatch of `rows` x `length` tokens on each device, all of them all-reduces:
//
//   activations [rows, length, width]   2 forward and 2 backward a layer, 1 after the embedding,
//                                       1 for the gradient of the head's input
//   rows of logits [rows * length]      the loss: 2 forward (greatest logit, sum of exponentials),
//                                       1 backward
struct TensorParallelTraffic {
  Traffic activations, loss;
};
TensorParallelTraffic tensor_parallel_traffic(const Mesh& mesh, const GptOptions& model,
                                              std::int64_t rows, std::int64_t length,
                                              const std::string& axis);

}  // namespace meshtorch
