// SPDX-License-Identifier: Apache-2.0
//
// Which dims of a program's tensors are cut together. An op rule (rule/op_rule.h) says which dims of its
// operands and results are one loop; loops of ops that share a dim are one feature. The hidden units of an
// MLP are a feature: dim 0 of the first weight, the activation's last dim, dim 1 of the second weight. To cut
// a feature cuts all of them, and no tensor moves between ops that only pass it through.
//
// (The idea is that of named dimension analysis, "TOAST: Fast and scalable auto-partitioning based on
// principled static analysis", arXiv 2508.15010; here the rules of the engine itself are what is analysed.)
//
// Pure: knows rules and shapes, no tensors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <meshtorch/rule/op_rule.h>

namespace meshtorch {

class FeatureGraph {
 public:
  // A tensor that no op made, or whose op has no rule: each dim is a feature of its own. Its number.
  int add_tensor(const Shape& shape);

  // An op ran. Operands and outputs are numbers of tensors, -1: of no interest (absent, a constant).
  // Outputs that are new tensors are added first.
  void add_op(const OpRule& rule, const std::vector<int>& operands,
              const std::vector<int>& outputs);

  // The two tensors have the same elements, aligned at the last dim, as a copy or a detached one has.
  void same(int a, int b);

  struct Feature {
    // Into how many equal pieces a view lets it be cut: a divisor of this, which is the number of heads
    // where (heads head_dim) is split into heads and head_dim. 0: nobody asks.
    std::int64_t pieces = 0;
    std::string whole_by;   // an op that needs it whole: aten::native_layer_norm; empty: none
    std::string lookup_by;  // an op that picks of it by index: aten::embedding; empty: none
  };

  int feature(int tensor, std::size_t dim) const;  // equal numbers: one feature
  const Feature& at(int feature) const { return features_[static_cast<std::size_t>(feature)]; }
  const Shape& shape(int tensor) const;

 private:
  int add_feature();
  int root(int feature) const;
  void unite(int a, int b);
  void bind(const OpRule& rule, const OperandFactors& dims, int tensor,
            const std::vector<int>& loops);

  struct Value {
    Shape shape;
    std::vector<int> dims;
  };
  std::vector<Value> values_;
  std::vector<Feature> features_;
  mutable std::vector<int> parent_;
};

}  // namespace meshtorch
