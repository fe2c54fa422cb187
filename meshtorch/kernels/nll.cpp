// SPDX-License-Identifier: Apache-2.0
//
// Negative log likelihood where classes, batch or both are sharded: a device looks up the targets that
// fall into its classes, and the mean divides by the global weight of the valid targets.
#include <ATen/ATen.h>

#include <meshtorch/base/error.h>
#include <meshtorch/kernels/kernels.h>
#include <meshtorch/layout/shard.h>
#include <meshtorch/tensor/dispatch.h>
#include <meshtorch/tensor/meta.h>

namespace meshtorch {
namespace {

enum Reduce : std::int64_t { kNone = 0, kMean = 1, kSum = 2 };

// One device's part: which targets are its own, and at which local class.
struct Part {
  at::Tensor mine;    // bool, targets in the local classes and not ignored
  at::Tensor index;   // int64, local class, 0 where not mine
  at::Tensor weight;  // of each target, 0 where not mine
};

class Nll {
 public:
  explicit Nll(const KernelCall& call)
      : call_(call),
        self_(call.operand("self")),
        target_(call.operand("target")),
        ignore_(call.argument("ignore_index").toInt()),
        reduction_(call.argument("reduction").toInt()) {
    const Shape& shape = call.shapes[static_cast<std::size_t>(self_)];
    const Layout& layout = call.placement.operands[static_cast<std::size_t>(self_)];
    class_dim_ = shape.size() == 1 ? 0 : 1;
    classes_ = shape[class_dim_];
    class_axes_ = layout.dims[class_dim_];
    batch_axes_ = layout.sharded() - class_axes_.set();
  }

  std::int64_t reduction() const { return reduction_; }
  std::int64_t class_dim() const { return static_cast<std::int64_t>(class_dim_); }
  AxisSet batch_axes() const { return batch_axes_; }
  const Shards& self() const { return call_.locals[static_cast<std::size_t>(self_)]; }

  Part part(std::size_t d) const {
    const Interval range = shard_interval(call_.mesh, classes_, class_axes_, call_.positions[d]);
    const at::Tensor target = call_.locals[static_cast<std::size_t>(target_)][d].to(at::kLong);
    Part part;
    part.mine =
        target.ne(ignore_).logical_and_(target.ge(range.begin)).logical_and_(target.lt(range.end));
    part.index = target.sub(range.begin).mul_(part.mine);
    const auto dtype = self()[d].scalar_type();
    part.weight = part.mine.to(dtype);
    const int weight = weight_operand();
    if (weight >= 0 && range.size() > 0) {
      const at::Tensor& table = call_.locals[static_cast<std::size_t>(weight)][d];
      part.weight.mul_(table.index_select(0, part.index.flatten()).view(part.index.sizes()));
    }
    return part;
  }

  // The weight of all valid targets, the same scalar on every device. Without class weights it is a
  // count, which is kept with the target so that it is worked out once.
  Shards total_weight(const std::vector<Part>& parts) const {
    if (reduction_ == kNone) return fill(0);
    if (weight_operand() < 0) return fill(static_cast<double>(count_valid()));
    Shards sums;
    for (const Part& part : parts) sums.push_back(part.weight.sum());
    return call_.all_reduce(batch_axes_ | class_axes_.set(), sums);
  }

  // log p of each target, 0 where not mine (also where class 0, which stands in, is -inf).
  at::Tensor picked(std::size_t d, const Part& part) const {
    const at::Tensor& x = self()[d];
    if (x.size(class_dim()) == 0) return at::zeros(part.index.sizes(), x.options());
    return x.gather(class_dim(), part.index.unsqueeze(class_dim()))
        .squeeze(class_dim())
        .masked_fill_(part.mine.logical_not(), 0);
  }

  // A target that is nobody's class would silently count for nothing. Those without values are good.
  void check_targets() const {
    if (call_.meta()) return;
    for (const at::Tensor& target : call_.locals[static_cast<std::size_t>(target_)]) {
      const at::Tensor outside =
          target.ne(ignore_).logical_and_(target.lt(0).logical_or_(target.ge(classes_)));
      if (!outside.any().item<bool>()) continue;
      fail({.op = call_.info.name,
            .where = "target",
            .what = text("has class ", target.masked_select(outside)[0].item<std::int64_t>(),
                         ", expected 0 to ", classes_ - 1),
            .remedy = "correct it, or mark it with ignore_index"});
    }
  }

 private:
  int weight_operand() const {
    const auto& mine =
        call_.argument_operands[static_cast<std::size_t>(call_.info.argument("weight"))];
    return !mine.empty() && call_.tensors[static_cast<std::size_t>(mine[0])].defined() ? mine[0]
                                                                                       : -1;
  }

  Shards fill(double value) const {
    Shards results;
    for (const at::Tensor& local : self())
      results.push_back(at::scalar_tensor(value, local.options()));
    return results;
  }

  std::int64_t count_valid() const {
    const auto& target = call_.tensors[static_cast<std::size_t>(target_)];
    ShardedView* view = sharded_view(target);
    if (view == nullptr)
      return is_meta(target) ? target.numel() : target.ne(ignore_).sum().item<std::int64_t>();
    Allocation& allocation = *view->allocation();
    // Views of a part of the storage have counts of their own, which are not kept.
    const bool whole = view->locals()[0].nbytes() == view->locals()[0].storage().nbytes();
    const auto& known = allocation.count;
    if (whole && known && known->version == allocation.version && known->ignore_index == ignore_ &&
        known->numel == target.numel()) {
      return known->valid;
    }
    Shards counts;
    for (const at::Tensor& local : call_.locals[static_cast<std::size_t>(target_)]) {
      counts.push_back(local.ne(ignore_).sum());
    }
    const at::Tensor sum = call_.all_reduce(batch_axes_, counts)[0];
    const std::int64_t valid = sum.is_meta() ? target.numel() : sum.item<std::int64_t>();
    if (!whole) return valid;
    allocation.count = std::make_shared<const Allocation::Count>(
        Allocation::Count{allocation.version, target.numel(), ignore_, valid});
    return valid;
  }

  const KernelCall& call_;
  int self_, target_;
  std::int64_t ignore_, reduction_, classes_ = 0;
  std::size_t class_dim_ = 1;
  AxisList class_axes_;
  AxisSet batch_axes_;
};

KernelResult nll_forward(KernelCall& call) {
  const Nll nll(call);
  nll.check_targets();
  std::vector<Part> parts;
  for (std::size_t d = 0; d < call.devices(); ++d) parts.push_back(nll.part(d));
  KernelResult results(2);
  results[1] = nll.total_weight(parts);
  for (std::size_t d = 0; d < call.devices(); ++d) {
    at::Tensor loss = nll.picked(d, parts[d]).neg_().mul_(parts[d].weight);
    if (nll.reduction() != kNone) loss = loss.sum();
    if (nll.reduction() == kMean) loss.div_(results[1][d]);
    results[0].push_back(loss);
  }
  return results;
}

KernelResult nll_backward(KernelCall& call) {
  const Nll nll(call);
  const Shards& gradient = call.locals[static_cast<std::size_t>(call.operand("grad_output"))];
  const Shards& total = call.locals[static_cast<std::size_t>(call.operand("total_weight"))];
  KernelResult results(1);
  for (std::size_t d = 0; d < call.devices(); ++d) {
    const Part part = nll.part(d);
    at::Tensor value = part.weight.neg().mul_(gradient[d]);
    if (nll.reduction() == kMean) value.div_(total[d]);
    value.masked_fill_(part.mine.logical_not(), 0);  // also where the total is zero
    at::Tensor result = at::zeros_like(nll.self()[d]);
    if (result.numel() > 0) {
      result.scatter_(nll.class_dim(), part.index.unsqueeze(nll.class_dim()),
                      value.unsqueeze(nll.class_dim()));
    }
    results[0].push_back(result);
  }
  return results;
}

}  // namespace

void install_nll(Dispatch& dispatch) {
  for (const char* op : {"aten::nll_loss_forward", "aten::nll_loss2d_forward"})
    dispatch.add_kernel(op, nll_forward);
  for (const char* op : {"aten::nll_loss_backward", "aten::nll_loss2d_backward"})
    dispatch.add_kernel(op, nll_backward);
}

}  // namespace meshtorch
