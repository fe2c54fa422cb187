// SPDX-License-Identifier: Apache-2.0
//
// How activations are to lie, said beside the model instead of in it. libtorch's modules have no forward
// hooks and an activation has no name, so a constraint is attached to the op that consumes a named
// parameter (tree/activation_rules.h):
//
//   mt::shard(*model, mesh, rules);
//   auto report = mt::constrain(*model, {{R"(norm\.weight$)", P("dp", "tp")},          // its input
//                                        {R"(\.down\.weight$)", {}, P("dp", "tp")}});  // its output
//   std::cout << report.to_string();
//
// From then on the op reshards its input before, its output after, by the differentiable reshard
// (sharding.h), so that the gradients come back as the activations lie. A child of a torch::nn::Sequential can
// be named itself, "^blocks\\.3$" (sequential_child.h). For other modules write x = reshard(x, spec) in forward.
//
// These ops do: linear layers (matmul,
// linear and addmm, the weight as it is or transposed; the output is taken before the bias is added),
// embedding, layer_norm, rms_norm, group_norm, conv1d, conv2d and conv3d. Others ignore a constraint.
//
// It belongs to the parameter's memory: in-place updates, views and optimizers keep it, but to(dtype),
// clone() and a second shard() make another parameter. Constrain after those.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include <torch/nn/module.h>

#include <meshtorch/tensor/sharded.h>
#include <meshtorch/tree/activation_rules.h>

namespace meshtorch {

// Attaches what the rules say, in place of what earlier calls gave the same parameters and modules. A
// parameter under several paths gets what fires for any of them. Throws Error, and changes nothing: what
// match_activations throws, a parameter that is plain or on another mesh than the others, paths of one
// parameter or module that want different things.
ConstraintReport constrain(torch::nn::Module& module, const std::vector<ActivationRule>& rules);

// As if constrain had not been called.
void unconstrain(torch::nn::Module& module);

// For the kernels. What is asked of the ops that consume one parameter.
struct Constraint {
  struct Use {
    std::optional<PartitionSpec> input, output;
    std::string op;  // empty: any
  };

  Constraint(std::string path, std::vector<Use> uses);
  ~Constraint();
  Constraint(const Constraint&) = delete;
  Constraint& operator=(const Constraint&) = delete;

  const Use* find(std::string_view op) const;  // null: nothing is asked
  // There is a constraint somewhere: what an op looks at first.
  static bool any() { return alive_.load(std::memory_order_relaxed) > 0; }

  const std::string path;
  const std::vector<Use> uses;

 private:
  inline static std::atomic<int> alive_ = 0;
};

inline bool is_constrained(const at::Tensor& parameter) {
  if (!Constraint::any() || !parameter.defined()) return false;
  const ShardedView* view = sharded_view(parameter);
  return view != nullptr && view->allocation()->constraint != nullptr && view->mesh().size() > 1;
}

// What op (as in ActivationRule::op) is to be given for `x`: x itself where nothing is asked or where it
// lies so. Consumers of one tensor that ask alike, in a row, share one result while it lives: q, k and v cost
// one all-gather, and their gradients, summed, one reduce-scatter. The result is not kept alive by that.
// Throws Error with the parameter's path: a spec longer than x's rank.
at::Tensor constrained_input(const char* op, const at::Tensor& parameter, const at::Tensor& x);
at::Tensor constrained_output(const char* op, const at::Tensor& parameter, const at::Tensor& y);

}  // namespace meshtorch
