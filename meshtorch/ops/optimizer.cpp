// SPDX-License-Identifier: Apache-2.0
//
// Fused optimizer steps: element by element within one parameter. A mesh axis means another dim to each
// parameter of a list, which no rule of the whole list can say: kernels/ places each parameter's tensors
// as it lies, and the functional forms of longer lists are whole.
#include <meshtorch/base/error.h>
#include <meshtorch/ops/families.h>
#include <meshtorch/ops/notation.h>

namespace meshtorch {
namespace {

OpRule step(const OpCall& call) {
  std::size_t lists = 0;
  for (const Argument& argument : call.arguments) lists += argument.operands.size() > 1;
  std::vector<std::string> operands;
  for (const auto& operand : call.operands) {
    operands.push_back(!operand ? "" : lists == 0 ? "..." : std::string(operand->size(), '*'));
  }
  std::vector<std::string> outputs;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (call.operands[i]) outputs.push_back(operands[i]);
  }
  return rule_for(call, join(operands, ",") + "->" + join(outputs, ","));
}

}  // namespace

void add_optimizer(Family& family) {
  family.add("...,...,...->...,...,...", step, {"_fused_sgd", "_fused_sgd.tensor_lr"});
  family.add("...,...,...,->...,...,...,", step, {"_fused_adagrad", "_fused_adagrad.tensor_lr"});
  family.add("...,...,...,...,...,->...,...,...,...,...", step,
             {"_fused_adam", "_fused_adam.tensor_lr", "_fused_adamw", "_fused_adamw.tensor_lr"});
  // An overflow anywhere is found for all: the kernel looks on every device.
  family.add("...,,->...,", step, {"_amp_foreach_non_finite_check_and_unscale"});
  family.add(",,->,", {"_amp_update_scale"});
}

}  // namespace meshtorch
