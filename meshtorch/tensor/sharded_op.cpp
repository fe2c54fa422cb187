// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/tensor/sharded_op.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

#include <torch/csrc/autograd/function.h>

#include <meshtorch/base/error.h>
#include <meshtorch/layout/shard.h>
#include <meshtorch/tensor/runtime.h>
#include <meshtorch/tensor/write.h>

namespace meshtorch {

void ShardedOp::operator()(const c10::OperatorHandle& op, c10::DispatchKeySet,
                           torch::jit::Stack* stack) {
  if (!info_) {
    info_ = std::make_unique<OpInfo>(analyse(op));
    override_ = dispatch_.find_override(info_->name);
  }
  at::AutoDispatchBelowADInplaceOrView below;
  if (single_device(op, *stack)) return;
  run(op, *stack);
}

void ShardedOp::run(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  Frame frame(*info_, stack.data() + stack.size() - info_->arguments.size());
  frame.find_mesh();
  if (!frame.mesh.defined()) {
    fail({.op = info_->name,
          .where = "",
          .what = "was dispatched to the sharded kernel without a sharded operand",
          .remedy = "report this"});
  }
  if (info_->kind == OpKind::out) return run_out(frame, stack);
  if (info_->writes) {
    if (run_on_plain_views(op, dispatch_.runtime(), frame, stack)) return;
    convert_plain_destinations(dispatch_.runtime(), frame);
  }
  if (override_ != nullptr) return (*override_)(frame, stack);
  switch (info_->kind) {
    case OpKind::alias:
      return run_alias(frame, stack);
    case OpKind::copy:
      return run_copy(frame, stack);
    case OpKind::fill:
      return run_fill(op, frame, stack);
    case OpKind::metadata:
      return run_metadata(op, frame, stack);
    default:
      break;
  }
  if (info_->writes) {
    check_written(frame);
    adopt_accumulation(frame);
  }
  const std::shared_ptr<const Decision> kept = decisions_.find(dispatch_.runtime(), frame);
  const Decision& decision = *kept;
  switch (decision.run) {
    case Decision::Run::local:
      return run_local(op, frame, decision, stack);
    case Decision::Run::aside:
      return run_aside(frame, stack);
    case Decision::Run::gather:
      return run_gather(op, frame, decision, stack);
  }
}

void ShardedOp::run_alias(Frame& frame, torch::jit::Stack& stack) {
  const at::Tensor& self = frame.tensors[0];
  at::Tensor result =
      wrap(self.sizes().vec(), c10::intrusive_ptr<ShardedView>::reclaim_copy(frame.views[0]));
  stack.pop_back();
  stack.emplace_back(std::move(result));
}

void ShardedOp::check_written(const Frame& frame) {
  for_written(frame, [&](std::size_t operand) {
    check_writable(*info_, frame.operand_name(operand), *frame.views[operand]);
  });
}

bool ShardedOp::is_written(const Frame& frame, std::size_t operand) {
  bool found = false;
  for_written(frame, [&](std::size_t written_operand) { found |= written_operand == operand; });
  return found;
}

std::vector<Shards> ShardedOp::move(const Frame& frame, const Decision& decision,
                                    bool own_written) {
  std::vector<Shards> locals(frame.tensors.size());
  for (std::size_t i = 0; i < frame.tensors.size(); ++i) {
    if (!frame.tensors[i].defined()) continue;
    const Layout& wanted = decision.placement.operands[i];
    ShardedView* view = frame.views[i];
    if (view == nullptr) {
      locals[i] = place(frame.tensors[i], frame.mesh, wanted);
    } else if (view->dims() == wanted.dims &&
               (view->unreduced() == wanted.unreduced || info_->kind == OpKind::factory)) {
      locals[i] = view->locals();
    } else {
      const Cause cause{
          .op = info_->name, .origin = Origin::implied, .where = frame.operand_name(i)};
      locals[i] = redistribute(*view, frame.tensors[i].sizes().vec(), wanted, cause,
                               own_written && is_written(frame, i));
    }
  }
  return locals;
}

void ShardedOp::run_local(const c10::OperatorHandle& op, Frame& frame, const Decision& decision,
                          torch::jit::Stack& stack) {
  const auto& positions = dispatch_.runtime().communicator().addressable(frame.mesh);
  const std::vector<Shards> locals = move(frame, decision, false);
  settle_backward_buffer(frame, decision, locals);
  std::vector<Shape> shapes;
  for (const at::Tensor& tensor : frame.tensors) {
    shapes.push_back(tensor.defined() ? tensor.sizes().vec() : Shape{});
  }
  KernelCall call{op,
                  *info_,
                  frame.mesh,
                  decision.rule,
                  decision.placement,
                  positions,
                  frame.tensors,
                  shapes,
                  locals,
                  frame.arguments,
                  decision.sizes,
                  frame.argument_operands};
  Results results;
  if (decision.kernel != nullptr) {
    results.tensors = (*decision.kernel)(call);
    results.lists.assign(info_->returns.size(), -1);
  } else {
    const bool views = !info_->returns.empty() && info_->returns[0].viewed_argument >= 0;
    for (std::size_t d = 0; d < positions.size(); ++d) {
      if (decision.skip[d] && !views) continue;
      torch::jit::Stack local = call.stack(d);
      if (decision.rule.local_view) {
        view_as_result(frame, decision, positions[d], local);
      } else {
        run_on_device(op, local);
      }
      results.add(d, positions.size(), local);
    }
    supply_skipped(frame, decision, positions, results);
  }
  for_written(frame, [&](std::size_t operand) { written(*frame.views[operand]); });
  put_results(frame, &decision, results, locals, stack);
}

void ShardedOp::settle_backward_buffer(Frame& frame, const Decision& decision,
                                       const std::vector<Shards>& locals) {
  if (info_->returns.empty() || info_->returns[0].viewed_argument < 0) return;
  const auto& mine =
      frame.argument_operands[static_cast<std::size_t>(info_->returns[0].viewed_argument)];
  if (mine.empty()) return;
  const auto operand = static_cast<std::size_t>(mine[0]);
  ShardedView* view = frame.views[operand];
  if (view == nullptr || locals[operand][0].is_same(view->locals()[0]) || !unaliased(*view)) return;
  const auto node = torch::autograd::get_current_node();
  if (node == nullptr || node->name().find("CopySlices") == std::string::npos) return;
  const Layout& layout = decision.placement.operands[operand];
  auto allocation = std::make_shared<Allocation>();
  allocation->unreduced = layout.unreduced;
  rebind(frame.tensors[operand], frame.tensors[operand].sizes().vec(),
         c10::make_intrusive<ShardedView>(frame.mesh, std::make_shared<const DimAxes>(layout.dims),
                                          locals[operand], std::move(allocation)));
  frame.views[operand] = sharded_view(frame.tensors[operand]);
}

void ShardedOp::run_on_device(const c10::OperatorHandle& op, torch::jit::Stack& local) {
  if (info_->name == "aten::view" || info_->name == "aten::_unsafe_view") {
    at::Tensor result = at::reshape(local[0].toTensor(), local[1].toIntVector());
    local.clear();
    local.emplace_back(std::move(result));
    return;
  }
  if (info_->name == "aten::new_empty_strided") {
    local[2] = dense_strides_like(local[1].toIntVector(), local[2].toIntVector());
  }
  op.callBoxed(&local);
}

Shape ShardedOp::dense_strides_like(const Shape& sizes, const Shape& global) {
  std::vector<std::size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](auto a, auto b) { return global[a] < global[b]; });
  Shape strides(sizes.size());
  std::int64_t next = 1;
  for (const std::size_t dim : order) {
    strides[dim] = next;
    next *= std::max<std::int64_t>(sizes[dim], 1);
  }
  return strides;
}

void ShardedOp::view_as_result(const Frame& frame, const Decision& decision, std::int64_t position,
                               torch::jit::Stack& local) {
  Shape global;
  for (const DimFactors& dim : decision.rule.outputs[0]) {
    std::int64_t extent = 1;
    for (const int factor : dim)
      extent *= decision.rule.factors[static_cast<std::size_t>(factor)].size;
    global.push_back(extent);
  }
  const Shape shape = shard_shape(frame.mesh, global, decision.placement.outputs[0], position);
  at::Tensor result = at::reshape(local[0].toTensor(), shape);
  local.clear();
  local.emplace_back(std::move(result));
}

void ShardedOp::run_aside(Frame& frame, torch::jit::Stack& stack) {
  torch::jit::Stack call(frame.arguments, frame.arguments + info_->arguments.size());
  info_->functional->callBoxed(&call);
  std::size_t next = 0;
  std::vector<at::Tensor> originals;
  for_written(frame, [&](std::size_t operand) {
    assign(frame, operand, call[next++].toTensor());
    written(*frame.views[operand]);
    originals.push_back(frame.tensors[operand]);
  });
  stack.erase(stack.end() - static_cast<std::ptrdiff_t>(info_->arguments.size()), stack.end());
  for (std::size_t r = 0; r < info_->returns.size(); ++r) stack.emplace_back(originals.at(r));
}

}  // namespace meshtorch
