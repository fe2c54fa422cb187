// SPDX-License-Identifier: Apache-2.0
//
// Means over sharded dims: a device sums what it holds and divides by the global count, so that uneven
// shards weigh by their elements and the result is an unreduced sum like any other.
#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>

#include <meshtorch/kernels/kernels.h>
#include <meshtorch/layout/shard.h>
#include <meshtorch/tensor/dispatch.h>

namespace meshtorch {
namespace {

std::int64_t reduced_count(const KernelCall& call) {
  const Shape& shape = call.shapes[0];
  const int dim = call.info.argument("dim");
  if (dim < 0 || call.arguments[dim].isNone() || call.arguments[dim].toIntVector().empty())
    return numel(shape);
  std::int64_t count = 1;
  const auto rank = static_cast<std::int64_t>(shape.size());
  for (const std::int64_t d : call.arguments[dim].toIntVector()) {
    if (rank > 0) count *= shape[static_cast<std::size_t>(d < 0 ? d + rank : d)];
  }
  return count;
}

bool is_half(at::ScalarType type) { return type == at::kHalf || type == at::kBFloat16; }

at::Tensor local_sum(const KernelCall& call, const at::Tensor& local) {
  const c10::IValue& dtype = call.argument("dtype");
  // 16-bit sums would overflow or round before the division: they are taken in fp32.
  std::optional<at::ScalarType> type;
  if (!dtype.isNone()) type = dtype.toScalarType();
  if (is_half(type.value_or(local.scalar_type()))) type = at::kFloat;
  const int dim = call.info.argument("dim");
  if (dim < 0) return at::sum(local, type);
  const auto dims = call.arguments[dim].isNone() ? std::vector<std::int64_t>{}
                                                 : call.arguments[dim].toIntVector();
  return at::sum(local, dims, call.argument("keepdim").toBool(), type);
}

KernelResult mean(KernelCall& call) {
  const auto count = static_cast<double>(reduced_count(call));
  KernelResult results(1);
  const c10::IValue& dtype = call.argument("dtype");
  for (const at::Tensor& local : call.locals[0]) {
    const auto type = dtype.isNone() ? local.scalar_type() : dtype.toScalarType();
    results[0].push_back(local_sum(call, local).div_(count).to(type));
  }
  return results;
}

// A loss with a `reduction` argument, or its backward: a mean is the sum over the global count.
KernelResult mean_loss(KernelCall& call) {
  constexpr std::int64_t kMean = 1, kSum = 2;
  const auto reduction = static_cast<std::size_t>(call.info.argument("reduction"));
  const bool mean = call.arguments[reduction].toInt() == kMean;
  // A backward divides by the elements of what it differentiates, as libtorch's kernels do: of two operands
  // that broadcast, its own.
  const Shape& self = call.shapes[static_cast<std::size_t>(call.operand("self"))];
  const bool backward = call.info.argument("grad_output") >= 0;
  const auto count = static_cast<double>(
      backward ? numel(self)
               : numel(at::infer_size(
                     self, call.shapes[static_cast<std::size_t>(call.operand("target"))])));
  const auto type = call.locals[static_cast<std::size_t>(call.operand("self"))][0].scalar_type();
  KernelResult results(1);
  for (std::size_t d = 0; d < call.devices(); ++d) {
    torch::jit::Stack local = call.stack(d);
    if (mean) {
      local[reduction] = kSum;
      for (c10::IValue& value : local) {
        if (value.isTensor() && value.toTensor().defined() &&
            is_half(value.toTensor().scalar_type())) {
          value = value.toTensor().to(at::kFloat);
        }
      }
    }
    at::Tensor result = call.run(std::move(local))[0].toTensor();
    results[0].push_back(mean ? result.div_(count).to(type) : result);
  }
  return results;
}

}  // namespace

void install_mean(Dispatch& dispatch) {
  dispatch.add_kernel("aten::mean", mean);
  dispatch.add_kernel("aten::mean.dim", mean);
  for (const char* loss : {"mse_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy"}) {
    dispatch.add_kernel("aten::" + std::string(loss), mean_loss);
    dispatch.add_kernel("aten::" + std::string(loss) + "_backward", mean_loss);
  }
  dispatch.add_kernel("aten::binary_cross_entropy_with_logits", mean_loss);
  dispatch.add_kernel("aten::soft_margin_loss", mean_loss);
  dispatch.add_kernel("aten::soft_margin_loss_backward", mean_loss);
}

}  // namespace meshtorch
