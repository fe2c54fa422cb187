// SPDX-License-Identifier: Apache-2.0
//
// Log-softmax over a sharded class dim, after Megatron's vocabulary-parallel cross entropy (Shoeybi et
// al., arXiv 1909.08053, section 3): the maximum and the sum of exponentials go over the axis, the
// logits stay where they are.
#include <ATen/ATen.h>

#include <limits>

#include <meshtorch/kernels/kernels.h>
#include <meshtorch/tensor/dispatch.h>

namespace meshtorch {
namespace {

std::size_t class_dim(const KernelCall& call, const at::Tensor& local) {
  const std::int64_t dim = call.argument("dim").toInt();
  return static_cast<std::size_t>(dim < 0 ? dim + local.dim() : dim);
}

// None for a scalar and for a dim that libtorch will refuse.
AxisSet class_axes(const Layout& layout, std::size_t dim) {
  return dim < layout.dims.size() ? layout.dims[dim].set() : AxisSet{};
}

KernelResult run_as_is(const KernelCall& call) {
  KernelResult results(1);
  for (std::size_t d = 0; d < call.devices(); ++d)
    results[0].push_back(call.run(call.stack(d))[0].toTensor());
  return results;
}

at::Tensor maximum(const at::Tensor& x, std::int64_t dim) {
  if (x.size(dim) > 0) return x.amax(dim, true);
  auto sizes = x.sizes().vec();
  sizes[static_cast<std::size_t>(dim)] = 1;
  return at::full(sizes, -std::numeric_limits<double>::infinity(), x.options());
}

KernelResult log_softmax(KernelCall& call) {
  const Shards& x = call.locals[0];
  const auto dim = class_dim(call, x[0]);
  const AxisSet axes = class_axes(call.placement.operands[0], dim);
  if (axes.empty() || call.mesh.shards(axes) == 1) return run_as_is(call);
  const auto d_dim = static_cast<std::int64_t>(dim);
  Shards peaks, sums;
  for (const at::Tensor& local : x) peaks.push_back(maximum(local, d_dim));
  peaks = call.all_reduce(axes, peaks, Reduction::max);
  for (std::size_t d = 0; d < x.size(); ++d)
    sums.push_back(at::sub(x[d], peaks[d]).exp_().sum(d_dim, true));
  sums = call.all_reduce(axes, sums);
  KernelResult results(1);
  for (std::size_t d = 0; d < x.size(); ++d)
    results[0].push_back(at::sub(x[d], sums[d].log().add_(peaks[d])));
  return results;
}

KernelResult log_softmax_backward(KernelCall& call) {
  const Shards& gradient = call.locals[0];
  const Shards& output = call.locals[1];
  const auto dim = class_dim(call, output[0]);
  const AxisSet axes = class_axes(call.placement.operands[1], dim);
  if (axes.empty() || call.mesh.shards(axes) == 1) return run_as_is(call);
  Shards sums;
  for (const at::Tensor& local : gradient)
    sums.push_back(local.sum(static_cast<std::int64_t>(dim), true));
  sums = call.all_reduce(axes, sums);
  KernelResult results(1);
  for (std::size_t d = 0; d < output.size(); ++d) {
    results[0].push_back(at::addcmul(gradient[d], output[d].exp(), sums[d], -1));
  }
  return results;
}

}  // namespace

void install_softmax(Dispatch& dispatch) {
  dispatch.add_kernel("aten::_log_softmax", log_softmax);
  dispatch.add_kernel("aten::_log_softmax_backward_data", log_softmax_backward);
}

}  // namespace meshtorch
