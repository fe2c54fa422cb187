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

// Step counts and learning rates are whole, and come out as they went in.
OpRule step(const OpCall& call) {
  std::size_t lists = 0;
  for (const Argument& argument : call.arguments) lists += argument.operands.size() > 1;
  const std::string loops = lists == 0 ? letters(call.operands[0]->size()) : "";
  const std::string apart = loops.empty() ? "" : "/" + loops;
  std::vector<std::string> operands;
  std::vector<std::string> outputs;
  for (const auto& operand : call.operands) {
    const bool elementwise = lists == 0 && operand && *operand == *call.operands[0];
    operands.push_back(!operand ? "" : elementwise ? loops : std::string(operand->size(), '*'));
    if (operand) outputs.push_back(operands.back() + (elementwise ? "" : apart));
  }
  return rule_for(call, join(operands, ",") + "->" + join(outputs, ","));
}

// Whole operands: what one of them holds is asked about all.
OpRule whole(const OpCall& call, std::size_t outputs) {
  std::vector<std::string> operands;
  for (const auto& operand : call.operands)
    operands.push_back(std::string(operand ? operand->size() : 0, '*'));
  const std::vector<std::string> written(operands.begin(),
                                         operands.begin() + static_cast<std::ptrdiff_t>(outputs));
  return rule_for(call, join(operands, ",") + "->" + join(written, ","));
}

OpRule unscale(const OpCall& call) { return whole(call, call.operands.size() - 1); }
OpRule update_scale(const OpCall& call) { return whole(call, 2); }

}  // namespace

void add_optimizer(Family& family) {
  family.add("...,...,...->...,...,...", step, {"_fused_sgd", "_fused_sgd.tensor_lr"});
  family.add("...,...,...,->...,...,...,", step, {"_fused_adagrad", "_fused_adagrad.tensor_lr"});
  family.add("...,...,...,...,...,->...,...,...,...,...,", step,
             {"_fused_adam", "_fused_adam.tensor_lr", "_fused_adamw", "_fused_adamw.tensor_lr"});
  // An overflow anywhere is found for all. The in-place form, which programs use, has a kernel.
  family.add("**,,->**,", unscale, {"_amp_foreach_non_finite_check_and_unscale"});
  family.add(",,->,", update_scale, {"_amp_update_scale"});
}

}  // namespace meshtorch
