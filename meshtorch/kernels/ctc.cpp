// SPDX-License-Identifier: Apache-2.0
//
// Connectionist temporal classification over a sharded batch. libtorch's composite takes the lengths to the
// host, as lists of the whole batch, which no device can use for its part of it: the lengths stay tensors.
#include <ATen/ATen.h>

#include <limits>

#include <meshtorch/kernels/kernels.h>
#include <meshtorch/tensor/dispatch.h>
#include <meshtorch/tensor/sharding.h>

namespace meshtorch {
namespace {

std::vector<std::int64_t> integers(const at::Tensor& x) {
  const at::Tensor values = full(x.detach()).to(at::kLong).contiguous();
  return {values.data_ptr<std::int64_t>(), values.data_ptr<std::int64_t>() + values.numel()};
}

at::Tensor ctc_loss(const at::Tensor& log_probs, const at::Tensor& targets,
                    const at::Tensor& input_lengths, const at::Tensor& target_lengths,
                    std::int64_t blank, std::int64_t reduction, bool zero_infinity) {
  // Without a batch, or with all targets in one row, there are no parts.
  if (log_probs.dim() != 3 || targets.dim() != 2) {
    return at::ctc_loss(log_probs, targets, integers(input_lengths), integers(target_lengths),
                        blank, reduction, zero_infinity);
  }
  at::Tensor loss =
      std::get<0>(at::_ctc_loss(log_probs, targets.to(at::kLong), input_lengths.to(at::kLong),
                                target_lengths.to(at::kLong), blank, zero_infinity));
  if (zero_infinity) {
    loss = loss.masked_fill(loss.eq(std::numeric_limits<double>::infinity()), 0);
  }
  if (reduction == at::Reduction::Mean)
    return loss.div(target_lengths.clamp_min(1).to(loss.scalar_type())).mean();
  return reduction == at::Reduction::Sum ? loss.sum() : loss;
}

// The saved log alphas have a column per state of the longest target; that of the whole batch is not known
// here, so they get those of the longest there could be. The backward reads no more than its own.
KernelResult ctc_loss_kernel(KernelCall& call) {
  const Shards& log_probs = call.locals[0];
  const std::int64_t states = 2 * call.shapes[1].back() + 1;
  KernelResult results(2);
  for (std::size_t d = 0; d < call.devices(); ++d) {
    const std::int64_t steps = log_probs[d].size(0), batch = log_probs[d].size(1);
    if (batch == 0 || call.meta()) {
      results[0].push_back(at::empty({batch}, log_probs[d].options()));
      results[1].push_back(at::empty({batch, steps, states}, log_probs[d].options()));
      continue;
    }
    const auto local = call.run(call.stack(d));
    const at::Tensor alphas = local[1].toTensor();
    results[0].push_back(local[0].toTensor());
    results[1].push_back(at::constant_pad_nd(alphas, {0, states - alphas.size(2)},
                                             -std::numeric_limits<double>::infinity()));
  }
  return results;
}

}  // namespace

void install_ctc(Dispatch& dispatch) {
  dispatch.autograd_library().impl("ctc_loss.Tensor", TORCH_FN(ctc_loss));
  dispatch.add_kernel("aten::_ctc_loss.Tensor", ctc_loss_kernel);
}

}  // namespace meshtorch
