// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>

#include <meshtorch/tensor/device_scope.h>
#include <meshtorch/tensor/sharded_op.h>
#include <meshtorch/tensor/write.h>

namespace meshtorch {

bool ShardedOp::single_device(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  if (info_->random || override_ != nullptr) return false;
  const std::size_t count = info_->arguments.size();
  c10::IValue* arguments = stack.data() + stack.size() - count;
  const ShardedView* any = nullptr;
  for (std::size_t i = 0; i < count; ++i) {
    const ArgumentInfo& argument = info_->arguments[i];
    if (argument.kind == ArgumentKind::tensor_list) {
      if (arguments[i].isNone() || !arguments[i].isTensorList()) return false;
      for (const at::Tensor& tensor : arguments[i].toTensorVector()) {
        const ShardedView* view = sharded_view(tensor);
        if (view == nullptr || view->mesh().size() != 1) return false;
        any = view;
      }
    } else if (argument.kind == ArgumentKind::tensor && arguments[i].isTensor()) {
      const ShardedView* view = sharded_view(arguments[i].toTensor());
      if (view == nullptr) {
        if (argument.written) return false;
        continue;
      }
      if (view->mesh().size() != 1) return false;
      any = view;
    }
  }
  if (any == nullptr || info_->kind == OpKind::metadata || info_->kind == OpKind::out) return false;
  if (any->meta()) {
    Frame frame(*info_, arguments);
    frame.find_mesh();  // for messages
    check_meta(frame);
    strip_values(arguments);
  }
  const Mesh mesh = any->mesh();  // the call may hold the last handle of an operand
  run_single(op, stack, arguments, mesh, any->meta());
  return true;
}

void ShardedOp::run_single(const c10::OperatorHandle& op, torch::jit::Stack& stack,
                           c10::IValue* arguments, const Mesh& mesh, bool meta) {
  const std::size_t count = info_->arguments.size();
  c10::SmallVector<c10::IValue, 4> kept;  // wrappers that a return refers to, by return
  for (const ReturnInfo& result : info_->returns) {
    const int source = std::max(result.written_argument, result.viewed_argument);
    kept.push_back(source < 0 ? c10::IValue() : arguments[source]);
  }
  for (std::size_t i = 0; i < count; ++i) {
    const ArgumentInfo& argument = info_->arguments[i];
    if (argument.kind == ArgumentKind::tensor && arguments[i].isTensor()) {
      ShardedView* view = sharded_view(arguments[i].toTensor());
      if (view == nullptr) continue;
      if (argument.written) written(*view);
      arguments[i] = view->locals().front();
    } else if (argument.kind == ArgumentKind::tensor_list) {
      c10::List<at::Tensor> locals;
      for (const at::Tensor& tensor : arguments[i].toTensorVector()) {
        ShardedView* view = sharded_view(tensor);
        if (argument.written) written(*view);
        locals.push_back(view->locals().front());
      }
      arguments[i] = std::move(locals);
    }
  }
  {
    const device_scope on(mesh.devices().front(), &info_->name);
    call(op, stack, meta);
  }
  c10::IValue* results = stack.data() + stack.size() - info_->returns.size();
  for (std::size_t r = 0; r < info_->returns.size(); ++r) {
    if (info_->returns[r].written_argument >= 0) {
      results[r] = std::move(kept[r]);
    } else if (results[r].isTensor()) {
      results[r] = wrap_single(mesh, results[r].toTensor(), kept[r]);
    } else if (results[r].isTensorList()) {
      c10::List<at::Tensor> wrapped;
      for (const at::Tensor& local : results[r].toTensorVector()) {
        wrapped.push_back(wrap_single(mesh, local, kept[r]));
      }
      results[r] = std::move(wrapped);
    }
  }
}

at::Tensor ShardedOp::wrap_single(const Mesh& mesh, const at::Tensor& local,
                                  const c10::IValue& base) {
  if (!local.defined()) return local;
  const ShardedView* view = base.isTensor() ? sharded_view(base.toTensor()) : nullptr;
  auto allocation = view ? view->allocation() : std::make_shared<Allocation>();
  return wrap(local.sizes().vec(), c10::make_intrusive<ShardedView>(
                                       mesh, replicated_dims(static_cast<std::size_t>(local.dim())),
                                       Shards{local}, std::move(allocation)));
}

}  // namespace meshtorch
