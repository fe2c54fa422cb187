// SPDX-License-Identifier: Apache-2.0
//
// Sharded kernels: how an op computes on the devices where running the op itself on the local tensors
// is not enough - it needs a collective inside, a global index, a global count. A kernel is added to
// the runtime by the base op's name; the op's rule still decides the layouts.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <ATen/core/stack.h>

#include <meshtorch/rule/propagate.h>
#include <meshtorch/tensor/op_info.h>
#include <meshtorch/tensor/redistribute.h>

namespace meshtorch {

// One call of a sharded op, after its operands were brought to the layouts the rule asked for.
struct KernelCall {
  const c10::OperatorHandle& op;
  const OpInfo& info;
  const Mesh& mesh;
  const OpRule& rule;
  const Placement& placement;                  // layouts of operands and outputs
  const std::vector<std::int64_t>& positions;  // of the addressable devices
  const std::vector<at::Tensor>& tensors;      // operands as given (wrappers, plain, undefined)
  const std::vector<Shape>& shapes;            // their global shapes
  const std::vector<Shards>& locals;           // moved; empty for absent operands
  const c10::IValue* arguments;                // as given, in schema order

  std::size_t devices() const { return positions.size(); }
  // The locals have no values: nothing may be read on the host.
  bool meta() const;
  const c10::IValue& argument(std::string_view name) const;
  // The operand index of the (only) tensor of this argument.
  int operand(std::string_view name) const;
  // What device `d` would run the op with: locals for tensors, local sizes for global ones.
  torch::jit::Stack stack(std::size_t d) const;
  // Runs the op itself on these arguments; the results.
  torch::jit::Stack run(torch::jit::Stack arguments) const;

  // The sizes adapted for each device, by (argument, value).
  const std::vector<std::vector<std::pair<int, c10::IValue>>>& sizes;
  const std::vector<std::vector<int>>& argument_operands;  // per argument, its operands

  // The axes that shard factor dims of an operand, and so on, are in placement. A collective of this
  // kernel, recorded in the ledger as the algorithm's own:
  Shards all_reduce(AxisSet axes, const Shards& shards, Reduction reduction = Reduction::sum) const;
};

// Per output, one local tensor per device.
using KernelResult = std::vector<Shards>;
using Kernel = std::function<KernelResult(KernelCall&)>;

// The same list of axes in mesh order.
AxisList ordered(AxisSet axes);

class Runtime;

// Adds the kernels, overrides and autograd kernels of kernels/. Declared here and defined there: the
// runtime installs them without knowing which they are.
void install_kernels(Runtime& runtime);

}  // namespace meshtorch
