// SPDX-License-Identifier: Apache-2.0
//
// Batch norm whose statistics are those of the global batch, also where the batch is sharded (and
// unevenly so): two small sums over the batch's axes forward, one backward.
#include <ATen/ATen.h>

#include <array>

#include <meshtorch/comm/meta.h>
#include <meshtorch/kernels/kernels.h>
#include <meshtorch/layout/shard.h>
#include <meshtorch/tensor/dispatch.h>
#include <meshtorch/tensor/sharding.h>
#include <meshtorch/tensor/write.h>

namespace meshtorch {
namespace {

// Sums of a short type are taken in float, as libtorch's mixed batch norm does.
at::Tensor wide(const at::Tensor& x) {
  const bool is_short =
      x.defined() && (x.scalar_type() == at::kHalf || x.scalar_type() == at::kBFloat16);
  return is_short ? x.to(at::kFloat) : x;
}

class BatchNorm {
 public:
  BatchNorm(const KernelCall& call, const char* input) : call(call), input_(call.operand(input)) {
    const Shape& shape = call.shapes[static_cast<std::size_t>(input_)];
    const Layout& layout = call.placement.operands[static_cast<std::size_t>(input_)];
    axes = layout.sharded() - layout.dims[1].set();
    count = static_cast<double>(numel(shape)) / static_cast<double>(shape[1]);
    for (std::int64_t dim = 0; dim < static_cast<std::int64_t>(shape.size()); ++dim) {
      if (dim != 1) dims.push_back(dim);
    }
    broadcast.assign(shape.size(), 1);
    broadcast[1] = -1;
  }

  const at::Tensor& input(std::size_t d) const {
    return call.locals[static_cast<std::size_t>(input_)][d];
  }
  // The channel vector of an optional argument; undefined where absent.
  at::Tensor channel(const char* name, std::size_t d) const {
    if (call.info.argument(name) < 0) return {};
    const auto& shards = call.locals[static_cast<std::size_t>(call.operand(name))];
    return shards.empty() ? at::Tensor() : shards[d];
  }
  // Whether parameters are of a shorter type than running statistics.
  bool mixed(std::size_t d) const {
    const at::Tensor weight = channel("weight", d), mean = channel("running_mean", d);
    return weight.defined() && mean.defined() && weight.scalar_type() != mean.scalar_type();
  }
  at::Tensor spread(const at::Tensor& channel) const { return channel.view(broadcast); }

  const KernelCall& call;
  AxisSet axes;
  double count;
  std::vector<std::int64_t> dims, broadcast;

 private:
  int input_;
};

// In evaluation libtorch's kernels run on each device, but for those without rows: they divide by zero.
// `empty` makes what those give. Weights of a short type (a precision policy casts parameters, and keeps
// buffers) go with statistics in float, as libtorch wants them.
template <class Empty>
KernelResult run_as_is(const BatchNorm& norm, bool backward, Empty empty) {
  const KernelCall& call = norm.call;
  KernelResult results(3);
  for (std::size_t d = 0; d < call.devices(); ++d) {
    if (norm.input(d).numel() == 0) {
      const std::array<at::Tensor, 3> values = empty(norm.input(d));
      for (std::size_t o = 0; o < 3; ++o) results[o].push_back(values[o]);
      continue;
    }
    torch::jit::Stack stack = call.stack(d);
    const at::Tensor weight = norm.channel("weight", d);
    for (const char* name : {"weight", "bias"}) {
      const int argument = call.info.argument(name);
      if (argument >= 0 && norm.mixed(d))
        stack[static_cast<std::size_t>(argument)] = wide(norm.channel(name, d));
    }
    const auto local = call.run(std::move(stack));
    for (std::size_t o = 0; o < 3; ++o) {
      const at::Tensor& result = local[o].toTensor();
      const bool gradient_of_weight = backward && o > 0 && result.defined() && norm.mixed(d);
      results[o].push_back(gradient_of_weight ? result.to(weight.scalar_type()) : result);
    }
  }
  return results;
}

// The schema does not say that running statistics are written, so the buffer itself is updated here, in
// the layout it has. `scale` of the statistic is added.
void update_running(const BatchNorm& norm, const char* name, const Shards& statistic,
                    double scale) {
  const KernelCall& call = norm.call;
  if (call.info.argument(name) < 0) return;  // a form that keeps none
  const at::Tensor& buffer = call.tensors[static_cast<std::size_t>(call.operand(name))];
  if (!buffer.defined()) return;
  if (sharded_view(buffer) == nullptr)
    convert(buffer, replicate(call.meta() ? without_values(buffer) : buffer, call.mesh));
  ShardedView& view = *sharded_view(buffer);
  check_writable(call.info, name, buffer);
  const Shards moved =
      redistribute(call.mesh, buffer.sizes().vec(), call.placement.outputs[1], view.layout(),
                   statistic, {call.info.name, Origin::algorithm, name});
  const double momentum = call.argument("momentum").toDouble();
  for (std::size_t d = 0; d < moved.size(); ++d)
    view.locals()[d].mul_(1 - momentum).add_(moved[d], momentum * scale);
  written(view);
}

KernelResult batch_norm(KernelCall& call) {
  const BatchNorm norm(call, "input");
  if (!call.argument("training").toBool()) {
    return run_as_is(norm, false, [](const at::Tensor& x) {
      return std::array{at::empty_like(x), at::empty({0}, x.options()),
                        at::empty({0}, x.options())};
    });
  }
  const double eps = call.argument("eps").toDouble();
  Shards means, variances;
  for (std::size_t d = 0; d < call.devices(); ++d)
    means.push_back(wide(norm.input(d)).sum(norm.dims).div_(norm.count));
  means = call.all_reduce(norm.axes, means);
  for (std::size_t d = 0; d < call.devices(); ++d) {
    variances.push_back(
        wide(norm.input(d)).sub(norm.spread(means[d])).square_().sum(norm.dims).div_(norm.count));
  }
  variances = call.all_reduce(norm.axes, variances);
  update_running(norm, "running_mean", means, 1);
  update_running(norm, "running_var", variances,
                 norm.count > 1 ? norm.count / (norm.count - 1) : 1);
  KernelResult results(3);
  for (std::size_t d = 0; d < call.devices(); ++d) {
    const at::Tensor scale = variances[d].add(eps).rsqrt_();
    at::Tensor result = wide(norm.input(d)).sub(norm.spread(means[d])).mul_(norm.spread(scale));
    const at::Tensor weight = norm.channel("weight", d), bias = norm.channel("bias", d);
    if (weight.defined()) result.mul_(norm.spread(weight));
    if (bias.defined()) result.add_(norm.spread(bias));
    results[0].push_back(result.to(norm.input(d).scalar_type()));
    results[1].push_back(means[d]);
    results[2].push_back(scale);
  }
  return results;
}

// dx = w s (dy - mean(dy) - xhat mean(dy xhat)), s = 1/std, xhat = (x - mean) s; dw and db are sums over
// this device's part of the batch, unreduced like any gradient.
KernelResult batch_norm_backward(KernelCall& call) {
  const BatchNorm norm(call, "input");
  if (!call.argument("train").toBool()) {
    const auto mask = call.argument("output_mask").toBoolList();
    return run_as_is(norm, true, [&](const at::Tensor& x) {
      const auto channels = [&](bool wanted) {
        return wanted ? at::zeros({x.size(1)}, x.options()) : at::Tensor();
      };
      return std::array{mask[0] ? at::empty_like(x) : at::Tensor(), channels(mask[1]),
                        channels(mask[2])};
    });
  }
  const Shards& gradient = call.locals[static_cast<std::size_t>(call.operand("grad_out"))];
  Shards normalized, sums;
  for (std::size_t d = 0; d < call.devices(); ++d) {
    const at::Tensor scale = norm.channel("save_invstd", d);
    normalized.push_back(wide(norm.input(d))
                             .sub(norm.spread(norm.channel("save_mean", d)))
                             .mul_(norm.spread(scale)));
    const at::Tensor dy = wide(gradient[d]);
    sums.push_back(at::stack({dy.mul(normalized[d]).sum(norm.dims), dy.sum(norm.dims)}));
  }
  const Shards global = call.all_reduce(norm.axes, sums);
  const auto mask = call.argument("output_mask").toBoolList();
  KernelResult results(3);
  for (std::size_t d = 0; d < call.devices(); ++d) {
    at::Tensor factor = norm.channel("save_invstd", d);
    const at::Tensor weight = norm.channel("weight", d);
    if (weight.defined()) factor = factor * weight;
    const auto type = weight.defined() ? weight.scalar_type() : gradient[d].scalar_type();
    at::Tensor dx = wide(gradient[d])
                        .sub(normalized[d] * norm.spread(global[d][0].div(norm.count)))
                        .sub_(norm.spread(global[d][1].div(norm.count)))
                        .mul_(norm.spread(factor));
    results[0].push_back(mask[0] ? dx.to(gradient[d].scalar_type()) : at::Tensor());
    results[1].push_back(mask[1] ? sums[d][0].to(type, false, true) : at::Tensor());
    results[2].push_back(mask[2] ? sums[d][1].to(type, false, true) : at::Tensor());
  }
  return results;
}

}  // namespace

void install_batch_norm(Dispatch& dispatch) {
  for (const char* op : {"aten::native_batch_norm", "aten::_native_batch_norm_legit",
                         "aten::_native_batch_norm_legit.no_stats"}) {
    dispatch.add_kernel(op, batch_norm);
  }
  dispatch.add_kernel("aten::native_batch_norm_backward", batch_norm_backward);
}

}  // namespace meshtorch
