// SPDX-License-Identifier: Apache-2.0
//
// Losses of a row of scores each: their mean is the sum over the global count of rows.
#include <ATen/ATen.h>

#include <meshtorch/kernels/kernels.h>
#include <meshtorch/tensor/dispatch.h>

namespace meshtorch {
namespace {

KernelResult row_loss(KernelCall& call) {
  const auto reduction = static_cast<std::size_t>(call.info.argument("reduction"));
  const bool mean = call.arguments[reduction].toInt() == at::Reduction::Mean;
  const auto self = static_cast<std::size_t>(call.operand("self"));
  const Shape& scores = call.shapes[self];
  const auto rows = static_cast<double>(scores.size() == 2 ? scores[0] : 1);
  KernelResult results;
  for (std::size_t d = 0; d < call.devices(); ++d) {
    torch::jit::Stack local = call.stack(d);
    if (mean) local[reduction] = std::int64_t{at::Reduction::Sum};
    local = call.run(std::move(local));
    results.resize(local.size());
    for (std::size_t o = 0; o < local.size(); ++o) {
      // Only the loss, or its gradient, is a mean; a second result says which classes are targets.
      at::Tensor result = local[o].toTensor();
      // libtorch leaves the loss of no rows unset.
      if (o == 0 && call.locals[self][d].numel() == 0) result.zero_();
      results[o].push_back(mean && o == 0 ? result / rows : result);
    }
  }
  return results;
}

}  // namespace

void install_margin(Dispatch& dispatch) {
  for (const char* op :
       {"aten::multi_margin_loss", "aten::multi_margin_loss_backward",
        "aten::multilabel_margin_loss_forward", "aten::multilabel_margin_loss_backward"}) {
    dispatch.add_kernel(op, row_loss);
  }
}

}  // namespace meshtorch
