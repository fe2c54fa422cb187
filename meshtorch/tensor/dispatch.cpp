// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/tensor/dispatch.h>

#include <ATen/core/dispatch/Dispatcher.h>

#include <meshtorch/base/error.h>
#include <meshtorch/tensor/sharded_op.h>

namespace meshtorch {
namespace {

// Ops of other namespaces: one kernel each, made at first use.
class ForeignOps final : public c10::OperatorKernel {
 public:
  explicit ForeignOps(Dispatch& dispatch) : dispatch_(dispatch) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack) {
    auto& kernel = kernels_[toString(op.operator_name())];
    if (!kernel) kernel = std::make_unique<ShardedOp>(dispatch_);
    (*kernel)(op, keys, stack);
  }

 private:
  Dispatch& dispatch_;
  std::map<std::string, std::unique_ptr<ShardedOp>> kernels_;
};

// Ops whose composite form is the better one: a foreach op is a loop over its base op.
bool keeps_composite(const c10::OperatorName& name) {
  return name.name.rfind("aten::_foreach_", 0) == 0;
}

// Composite ops that have a rule of their own: libtorch's form folds dims together that may be sharded.
bool replaces_composite(const c10::OperatorName& name) {
  return name.name == "aten::matmul" && name.overload_name.empty();
}

}  // namespace

Dispatch::Dispatch(Runtime& runtime)
    : runtime_(runtime),
      library_(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse3, __FILE__, __LINE__),
      fallback_(torch::Library::IMPL, "_", c10::DispatchKey::PrivateUse3, __FILE__, __LINE__),
      autograd_(torch::Library::IMPL, "aten", c10::DispatchKey::AutogradPrivateUse3, __FILE__,
                __LINE__) {
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (name.name.rfind("aten::", 0) != 0 || keeps_composite(name)) continue;
    const auto op = dispatcher.findSchema(name);
    if (!op || (op->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) &&
                !replaces_composite(name)))
      continue;
    library_.impl(toString(name).c_str(),
                  torch::CppFunction::makeFromBoxedFunctor(std::make_unique<ShardedOp>(*this)));
  }
  fallback_.fallback(torch::CppFunction::makeFromBoxedFunctor(std::make_unique<ForeignOps>(*this)));
}

Dispatch::~Dispatch() = default;

void Dispatch::add_kernel(const std::string& op, Kernel kernel) {
  if (!kernels_.emplace(op, std::move(kernel)).second) {
    fail({.op = "add_kernel",
          .where = op,
          .what = "has a kernel already",
          .remedy = "add one kernel per op"});
  }
}

void Dispatch::add_override(const std::string& op, Override run) {
  if (!overrides_.emplace(op, std::move(run)).second) {
    fail(
        {.op = "add_override", .where = op, .what = "has one already", .remedy = "add one per op"});
  }
}

const Dispatch::Override* Dispatch::find_override(const std::string& op) const {
  auto found = overrides_.find(op);
  return found == overrides_.end() ? nullptr : &found->second;
}

const Kernel* Dispatch::find_kernel(const std::string& op) const {
  auto found = kernels_.find(op);
  return found == kernels_.end() ? nullptr : &found->second;
}

}  // namespace meshtorch
