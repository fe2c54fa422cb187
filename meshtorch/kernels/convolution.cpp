// SPDX-License-Identifier: Apache-2.0
//
// Convolutions whose channels contract: a device without a part of them has the sum over nothing, which
// libtorch's own kernels refuse, and the bias where it is that device's.
#include <ATen/ATen.h>

#include <meshtorch/kernels/kernels.h>
#include <meshtorch/layout/shard.h>
#include <meshtorch/tensor/dispatch.h>

namespace meshtorch {
namespace {

at::Tensor sum_over_nothing(const KernelCall& call, std::size_t d, const at::Tensor& like) {
  const Shape local = shard_shape(call.mesh, output_extents(call.rule, 0),
                                  call.placement.outputs[0], call.positions[d]);
  at::Tensor result = at::zeros(local, like.options());
  const Shards& bias = call.locals[static_cast<std::size_t>(call.operand("bias"))];
  if (bias.empty() || result.numel() == 0) return result;
  Shape channels(local.size(), 1);
  channels[1] = local[1];
  return result.add_(bias[d].view(channels));
}

KernelResult convolution(KernelCall& call) {
  const Shards& input = call.locals[static_cast<std::size_t>(call.operand("input"))];
  const Shards& weight = call.locals[static_cast<std::size_t>(call.operand("weight"))];
  KernelResult results(1);
  for (std::size_t d = 0; d < call.devices(); ++d) {
    const bool nothing = input[d].numel() == 0 || weight[d].numel() == 0;
    results[0].push_back(nothing ? sum_over_nothing(call, d, input[d])
                                 : call.run(call.stack(d))[0].toTensor());
  }
  return results;
}

}  // namespace

void install_convolution(Dispatch& dispatch) {
  dispatch.add_kernel("aten::convolution", convolution);
  dispatch.add_kernel("aten::_convolution", convolution);
}

}  // namespace meshtorch
