// SPDX-License-Identifier: Apache-2.0
//
// Tensor parallelism for a model that nobody annotated: Megatron's alternation of column and row cuts
// (Shoeybi et al., arXiv 1909.08053), found by watching the model run.
//
//   mt::Llama model(options);                                       // plain torch::nn
//   const auto megatron = mt::MegatronRule("tp").record(
//       *model, mesh, [&] { return model->loss(tokens, targets); });  // on meta tensors: no arithmetic
//   std::cout << megatron.to_string();                                // what was chosen, and why
//   mt::shard(*model, mesh, megatron.table());
//
// How. One forward without values tells, by the engine's op rules, which dims of which parameters are cut
// together (feature_graph.h): heads are dim 0 of q, k and v and dim 1 of the projection after them. A feature
// that some op needs whole is one of the model's whole-feature points: the residual stream, which a
// normalisation reads. Of the others each kind (one per layer) is cut alone in a dry run with its backward, and
// counted. Kinds whose cut makes an op move a tensor that it then does not use as it lies are left whole; the
// rest are taken by collectives per element that they cut, fewest first, where no parameter would be cut twice.
//
// The result is a table like one that is written by hand, and no more than that: values are right under any.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <torch/nn/module.h>

#include <meshtorch/plan/record.h>
#include <meshtorch/tensor/tree.h>
#include <meshtorch/train/policy.h>
#include <meshtorch/tree/spec_table.h>

namespace meshtorch {

// Features of one kind: as many as there are layers that have one.
struct MegatronGroup {
  enum class Kind { heads, vocabulary, hidden } kind = Kind::hidden;
  std::vector<std::string> members;  // "layers.*.mlp.up.weight dim 0", layers as one
  std::int64_t features = 1;         // how many there are
  std::int64_t size = 0;             // of its widest dim
  std::int64_t pieces = 0;           // heads; 0: any number of pieces
  std::int64_t elements = 0;         // of the matrices that all of them cut
  bool cut = false;
  bool uneven = false;  // heads or groups that the axis does not divide
  std::string why;      // "native_layer_norm needs it whole"
  StepCost cost;        // of cutting one of them alone; zero where it was not tried
};

struct MegatronReport {
  std::string axis;
  std::int64_t size = 1;              // of the axis
  std::vector<MegatronGroup> groups;  // most elements first
  // By path, all leaves; notes say "column, heads".
  std::map<std::string, SpecTable::Entry> entries;
  StepCost cost;              // of a step with all of them
  std::int64_t elements = 0;  // of all matrices
  std::int64_t cut_elements = 0;

  // The choice as a rule for shard().
  SpecTable table() const { return {"MegatronRule(" + axis + ")", entries}; }
  // Every kind of feature, cut ones first, and why; then what a step costs.
  std::string to_string() const;
};

class MegatronRule {
 public:
  explicit MegatronRule(std::string axis) : axis_(std::move(axis)) {}

  const std::string& axis() const { return axis_; }

  // `forward` runs the module on plain inputs, of the shapes that it will be given. Parameters and buffers are
  // as before afterwards, in value, gradient and layout. Throws Error: an axis that is not on the mesh, a
  // forward that depends on values (item(), boolean indices) or on no parameter, and what forward throws.
  MegatronReport record(const torch::nn::Module& module, const Mesh& mesh,
                        const Forward& forward) const;
  // Of any tree: record(tree_leaves_with_path(tree), mesh, forward).
  MegatronReport record(const std::vector<PathLeaf>& leaves, const Mesh& mesh,
                        const Forward& forward) const;

 private:
  std::string axis_;
};

// apply() of a policy that says {"megatron": {"axis": "tp"}}: records the module for it.
PolicyReport apply(const Policy& policy, torch::nn::Module& module, const Mesh& mesh,
                   const Forward& forward);

}  // namespace meshtorch
