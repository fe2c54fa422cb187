// SPDX-License-Identifier: Apache-2.0
//
// What a program does with its parameters, from one forward on meta tensors.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <meshtorch/mesh/named_sharding.h>
#include <meshtorch/plan/feature_graph.h>

namespace meshtorch {

// The program: reads the parameters it closes over, and whatever else it needs as plain tensors; gives what
// it computes (a loss, logits).
using Forward = std::function<at::Tensor()>;

struct FeatureRecord {
  FeatureGraph graph;
  std::vector<int> tensors;  // of the graph, for each of the given ones
};

// The features of all tensors that have to do with the given ones. Runs forward once, without values, as
// on a mesh of two devices where nothing is cut. Throws what forward throws; Error where it depends on values.
FeatureRecord record_features(const std::vector<at::Tensor>& tensors, const Forward& forward);

// What one forward and its backward communicate along the one axis of `mesh` with the tensors laid out as
// `specs` say; in the end the result is whole and each gradient lies as its tensor.
struct StepCost {
  std::int64_t forward = 0;  // collectives of activations
  std::int64_t backward = 0;
  std::int64_t small = 0;  // those of less than a sixteenth of the largest: statistics, a loss
  std::int64_t bytes = 0;  // of all of them
  // What an op moved because it cannot use it where it is: "all-gather of aten::mm"; empty: nothing.
  std::vector<std::string> moved;
};

StepCost measure_step(const std::vector<at::Tensor>& tensors,
                      const std::vector<PartitionSpec>& specs, const Mesh& mesh,
                      const Forward& forward);

}  // namespace meshtorch
