// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/tensor/meta.h>

#include <ATen/ATen.h>

#include <algorithm>

#include <meshtorch/base/error.h>
#include <meshtorch/comm/meta.h>
#include <meshtorch/tensor/init_sharded_calls.h>
#include <meshtorch/tensor/runtime.h>
#include <meshtorch/tensor/sharded_op.h>

namespace meshtorch {
namespace {

// Only a boolean index has as many results as it has ones.
bool selects_by_bool(const Frame& frame) {
  for (std::size_t i = 1; i < frame.tensors.size(); ++i) {
    const at::Tensor& index = frame.tensors[i];
    if (index.defined() && (index.scalar_type() == at::kBool || index.scalar_type() == at::kByte))
      return true;
  }
  return false;
}

}  // namespace

meta_scope::meta_scope() : mode_(c10::DispatchKeySet(c10::DispatchKey::TESTING_ONLY_GenericMode)) {
  Runtime::current();
}

void create_on_meta(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard once(c10::DispatchKey::TESTING_ONLY_GenericMode);
  if (InitCalls* calls = InitCalls::current()) return calls->call(op, *stack);
  const auto& arguments = op.schema().arguments();
  c10::IValue* values = stack->data() + stack->size() - arguments.size();
  const bool follows = std::any_of(values, values + arguments.size(), [](const c10::IValue& value) {
    return value.isTensor() || value.isTensorList() || value.isOptionalTensorList();
  });
  for (std::size_t i = 0; i < arguments.size() && !follows; ++i) {
    if (arguments[i].name() == "device" && values[i].isNone()) values[i] = at::Device(at::kMeta);
  }
  op.callBoxed(stack);
}

bool is_meta(const at::Tensor& tensor) {
  const ShardedView* view = sharded_view(tensor);
  return view != nullptr ? view->meta() : tensor.defined() && tensor.is_meta();
}

c10::Scalar item_or(const at::Tensor& scalar, const c10::Scalar& otherwise) {
  if (!is_meta(scalar)) return scalar.item();
  if (ShardedView* view = sharded_view(scalar)) {
    redistribute(*view, {}, Layout::replicated(0),
                 {.op = "aten::_local_scalar_dense", .origin = Origin::implied, .where = "self"});
  }
  return otherwise;
}

void fail_without_values(const std::string& op, const std::string& where, const std::string& what) {
  fail({.op = op,
        .where = where,
        .what = what + ", and there are none in a meta run",
        .remedy = "leave it out of the dry run, or run with values"});
}

void Frame::find_meta() {
  meta = std::any_of(views.begin(), views.end(),
                     [](const ShardedView* view) { return view != nullptr && view->meta(); });
}

void ShardedOp::check_meta(const Frame& frame) const {
  if (info_->needs_values && (info_->base != "aten::index.Tensor" || selects_by_bool(frame)))
    fail_without_values(info_->name, frame.layouts(), "depends on the values of its operands");
  for (std::size_t i = 0; i < info_->arguments.size(); ++i) {
    if (!info_->arguments[i].written) continue;
    for (const int operand : frame.argument_operands[i]) {
      const ShardedView* view = frame.views[static_cast<std::size_t>(operand)];
      if (view == nullptr || view->meta()) continue;
      fail_without_values(info_->name, frame.operand_name(static_cast<std::size_t>(operand)),
                          "has values and would be written with an operand's");
    }
  }
}

void ShardedOp::strip_values(c10::IValue* arguments) const {
  for (std::size_t i = 0; i < info_->arguments.size(); ++i) {
    if (arguments[i].isDevice()) {
      arguments[i] = at::Device(at::kMeta);
    } else if (arguments[i].isTensor() && sharded_view(arguments[i].toTensor()) == nullptr) {
      arguments[i] = without_values(arguments[i].toTensor());
    }
  }
}

bool ShardedOp::same_locals(const std::vector<Shards>& locals, std::size_t d, std::size_t other) {
  return std::all_of(locals.begin(), locals.end(), [&](const Shards& shards) {
    return shards.empty() || shards[d].is_same(shards[other]);
  });
}

std::size_t ShardedOp::same_call(const Decision& decision, const std::vector<Shards>& locals,
                                 const std::vector<std::size_t>& tried, std::size_t d) {
  for (const std::size_t other : tried) {
    if (decision.skip[d] == decision.skip[other] && decision.sizes[d] == decision.sizes[other] &&
        same_locals(locals, d, other))
      return other;
  }
  return d;
}

void ShardedOp::call(const c10::OperatorHandle& op, torch::jit::Stack& local, bool meta) const {
  if (!meta) return op.callBoxed(&local);
  // libtorch's own shape functions of these refuse an empty index, which a device may have.
  if ((info_->base == "aten::index_add" || info_->base == "aten::index_reduce") &&
      local[2].toTensor().numel() == 0) {
    const at::Tensor self = local[0].toTensor();
    local = {info_->writes ? self : at::empty_like(self)};
    return;
  }
  try {
    op.callBoxed(&local);
  } catch (const c10::NotImplementedError&) {
    fail({.op = info_->name,
          .where = "",
          .what = "has no shape function, which a meta run needs",
          .remedy = "register one for the Meta key: TORCH_LIBRARY_IMPL(namespace, Meta, m)"});
  }
}

}  // namespace meshtorch
