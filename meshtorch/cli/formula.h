// SPDX-License-Identifier: Apache-2.0
//
// What tensor parallelism must communicate in a training step, as a closed formula of sizes: numbers
// to hold the ledger against. (What Zero must, its schedule tells: train/explain.h.) A ring over n
// devices moves, per device,
//
//   reduce-scatter, all-gather   (n-1)/n * b      of b bytes
//   all-reduce                  2(n-1)/n * b
//
// which is the least there is (Patarasuk and Yuan, 2009).
#pragma once

#include <cstdint>
#include <string>

#include <meshtorch/mesh/mesh.h>
#include <meshtorch/models/gpt.h>

namespace meshtorch {

// Collectives of one kind; bytes are those one device sends.
struct Traffic {
  std::int64_t count = 0;
  std::int64_t bytes = 0;

  Traffic& operator+=(const Traffic& other);
  friend bool operator==(const Traffic&, const Traffic&) = default;
};

// One microbatch, as a device sees it.
struct MicrobatchShape {
  std::int64_t rows = 1;    // of the device
  std::int64_t length = 1;  // tokens of a row, all devices of the axis together
  // Bytes of an element.
  std::int64_t activation_size = 4;
  std::int64_t logit_size = 4;
};

// Megatron's tensor parallelism of a GPT over `axis` (Shoeybi et al., arXiv 1909.08053):
//
//   activations [rows, length, width]   2 forward and 2 backward a layer, 1 after the embedding,
//                                       1 for the gradient of the head's input
//   rows of logits [rows * length]      the loss: 2 forward (greatest logit, sum of exponentials),
//                                       1 backward
//
// all of them all-reduces. With sequence parallelism (gpt_sequence_parallel; Korthikanti et al., arXiv
// 2205.05198) each one of activations is a reduce-scatter and an all-gather instead, of the same bytes
// together; for a length that the axis divides.
struct TensorParallelTraffic {
  Traffic all_reduce, reduce_scatter, all_gather;  // of activations
  Traffic loss;                                    // all-reduces

  TensorParallelTraffic& operator+=(const TensorParallelTraffic& other);
  friend bool operator==(const TensorParallelTraffic&, const TensorParallelTraffic&) = default;
};
TensorParallelTraffic tensor_parallel_traffic(const Mesh& mesh, const GptOptions& model,
                                              const MicrobatchShape& shape,
                                              bool sequence_parallel = false,
                                              const std::string& axis = "tp");

}  // namespace meshtorch
