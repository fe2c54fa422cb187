// SPDX-License-Identifier: Apache-2.0
//
// Buffers that have no layout of their own, or that nothing but the one who views them sees. They take a
// layout in which the view is local, or that of what is written into them.
//
// CopySlices, libtorch's backward of an in-place op on a view, does
//
//   result = grad.new_empty_strided(base's sizes and strides);
//   result.copy_(grad);
//   piece = view_fn(result);
//   piece.copy_(f(piece.clone()));
//
// where view_fn replays the chain of views. The gradient may be laid out so that a view of the chain has to
// communicate where that of the value had not: then `piece` would be a copy and the write lost.
#include <ATen/ATen.h>

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/tensor.h>
#include <torch/csrc/autograd/variable.h>

#include <meshtorch/comm/meta.h>
#include <meshtorch/layout/shard.h>
#include <meshtorch/tensor/runtime.h>
#include <meshtorch/tensor/sharded_op.h>
#include <meshtorch/tensor/write.h>

namespace meshtorch {
namespace {

bool in_copy_slices() {
  const auto node = torch::autograd::get_current_node();
  return node != nullptr && dynamic_cast<torch::autograd::CopySlices*>(node.get()) != nullptr;
}

// `from` without the axes that `wanted` has elsewhere, or not at all.
AxisSet misplaced(const Layout& from, const Layout& wanted) {
  AxisSet axes;
  for (std::size_t dim = 0; dim < from.dims.size(); ++dim) {
    const AxisList &had = from.dims[dim], &has = wanted.dims[dim];
    bool same = true;
    for (int i = 0; i < had.size(); ++i) {
      same = same && i < has.size() && had[i] == has[i];
      if (!same) axes.insert(had[i]);
    }
  }
  return axes | (from.unreduced - wanted.unreduced);
}

Layout without(const Layout& layout, AxisSet axes) {
  Layout result = Layout::replicated(static_cast<std::int64_t>(layout.dims.size()));
  for (std::size_t dim = 0; dim < layout.dims.size(); ++dim) {
    for (int i = 0; i < layout.dims[dim].size(); ++i) {
      const int axis = layout.dims[dim][i];
      if (!axes.contains(axis)) result.dims[dim].push_back(axis);
    }
  }
  result.unreduced = layout.unreduced - axes;
  return result;
}

// Points a buffer at locals in its own memory order.
void point_at(const at::Tensor& buffer, const Layout& layout, Shards locals,
              const std::shared_ptr<Allocation>& allocation) {
  for (at::Tensor& local : locals) {
    const Shape strides = dense_strides_like(shape_of(local), buffer.strides());
    if (local.strides() != at::IntArrayRef(strides))
      local = at::empty_strided(local.sizes(), strides, local.options()).copy_(local);
  }
  if (sharded_view(buffer)->meta()) share_equal(locals);
  allocation->unreduced = layout.unreduced;
  rebind(buffer, shape_of(buffer),
         c10::make_intrusive<ShardedView>(sharded_view(buffer)->mesh(),
                                          std::make_shared<const DimAxes>(layout.dims),
                                          std::move(locals), allocation));
}

// Zeros, or nothing yet: another layout of it costs nothing.
void lay_out_fresh(const at::Tensor& buffer, const Layout& layout) {
  const ShardedView& view = *sharded_view(buffer);
  Shards locals;
  for (const std::int64_t position : Runtime::current().communicator().addressable(view.mesh())) {
    locals.push_back(at::zeros(shard_shape(view.mesh(), shape_of(buffer), layout, position),
                               view.locals().front().options()));
  }
  auto allocation = std::make_shared<Allocation>();
  allocation->content = view.allocation()->content;
  point_at(buffer, layout, std::move(locals), allocation);
}

void lay_out(const at::Tensor& buffer, const Layout& layout, const OpInfo& info) {
  ShardedView& view = *sharded_view(buffer);
  Shards locals = redistribute(view, shape_of(buffer), layout,
                               {.op = info.name, .origin = Origin::implied, .where = "self"}, true);
  auto allocation = std::make_shared<Allocation>();
  allocation->backward_buffer = buffer.unsafeGetTensorImpl();
  point_at(buffer, layout, std::move(locals), allocation);
}

// `view` of `buffer` again, now that this has another layout. Whether it is local.
bool replay(const at::Tensor& view, const at::Tensor& buffer) {
  const auto* meta = torch::autograd::impl::get_view_autograd_meta(view);
  if (meta == nullptr || !meta->has_bw_view() || !meta->get_backward_view().has_view_fn())
    return false;
  const at::Tensor again = meta->get_backward_view().view_fn()(buffer);
  ShardedView* found = sharded_view(again);
  if (found->allocation() != sharded_view(buffer)->allocation()) return false;
  rebind(view, shape_of(again), c10::intrusive_ptr<ShardedView>::reclaim_copy(found));
  return true;
}

}  // namespace

void ShardedOp::mark_backward_buffer(const at::Tensor& made) const {
  if (info_->name != "aten::new_empty_strided" || !in_copy_slices()) return;
  sharded_view(made)->allocation()->backward_buffer = made.unsafeGetTensorImpl();
}

bool ShardedOp::adopt_fresh(Frame& frame, const Decision& decision) {
  if (!info_->writes || !decision.fresh) return false;
  bool adopted = false;
  for_written(frame, [&](std::size_t operand) {
    const ShardedView& view = *frame.views[operand];
    if (view.allocation()->content != Allocation::Content::zeros || !fresh(view) ||
        !unaliased(view) || view.layout() == *decision.fresh)
      return;
    lay_out_fresh(frame.tensors[operand], *decision.fresh);
    frame.views[operand] = sharded_view(frame.tensors[operand]);
    adopted = true;
  });
  return adopted;
}

bool ShardedOp::settle_buffer(Frame& frame, const Decision& decision) {
  if (info_->returns.empty() || info_->returns[0].viewed_argument < 0) return false;
  const auto& mine =
      frame.argument_operands[static_cast<std::size_t>(info_->returns[0].viewed_argument)];
  if (mine.empty()) return false;
  const auto operand = static_cast<std::size_t>(mine[0]);
  const ShardedView* view = frame.views[operand];
  if (view == nullptr) return false;
  const bool is_fresh = fresh(*view);
  if (!is_fresh && view->allocation()->backward_buffer == nullptr) return false;
  const Layout& wanted = decision.placement.operands[operand];
  if (view->layout() == wanted) return false;
  const at::Tensor& self = frame.tensors[operand];
  if (is_fresh && unaliased(*view)) {
    lay_out_fresh(self, wanted);
    frame.views[operand] = sharded_view(self);
    return true;
  }
  if (is_fresh || !in_copy_slices()) return false;
  const at::Tensor buffer = self.is_view() ? at::Tensor(self._base()) : self;
  if (buffer.unsafeGetTensorImpl() != view->allocation()->backward_buffer) return false;
  const Layout before = sharded_view(buffer)->layout();
  lay_out(buffer, without(before, misplaced(view->layout(), wanted)), *info_);
  if (buffer.is_same(self) || replay(self, buffer)) {
    frame.views[operand] = sharded_view(self);
    if (sharded_view(buffer)->layout() != before) return true;
  }
  lay_out(buffer, Layout::replicated(buffer.dim()), *info_);
  if (!buffer.is_same(self)) replay(self, buffer);
  frame.views[operand] = sharded_view(self);
  return true;
}

}  // namespace meshtorch
