// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/tensor/dispatch.h>

#include <ATen/core/dispatch/Dispatcher.h>

#include <set>

#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>

#include <meshtorch/base/error.h>
#include <meshtorch/tensor/meta.h>
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

// Ops whose composite form is the better one: a foreach op is a loop over its base op, the others end in
// a reduction that has a rule.
bool keeps_composite(const c10::OperatorName& name) {
  static const std::set<std::string> others{"aten::allclose", "aten::dist", "aten::_is_all_true",
                                            "aten::_is_any_true", "aten::is_same_size"};
  return name.name.rfind("aten::_foreach_", 0) == 0 || others.count(name.name) > 0;
}

// Composite ops that have a rule of their own: libtorch's form folds dims together that may be sharded,
// or is many ops where each device has one kernel for them.
bool replaces_composite(const c10::OperatorName& name) {
  static const std::set<std::string> names{"aten::matmul", "aten::mish_backward",
                                           "aten::silu_backward"};
  return names.count(name.name) > 0 && (name.overload_name.empty() || name.overload_name == "out");
}

}  // namespace

Dispatch::Dispatch(Runtime& runtime)
    : runtime_(runtime),
      library_(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse3, __FILE__, __LINE__),
      fallback_(torch::Library::IMPL, "_", c10::DispatchKey::PrivateUse3, __FILE__, __LINE__),
      autograd_(torch::Library::IMPL, "aten", c10::DispatchKey::AutogradPrivateUse3, __FILE__,
                __LINE__),
      autograd_fallback_(torch::Library::IMPL, "_", c10::DispatchKey::AutogradPrivateUse3, __FILE__,
                         __LINE__),
      meta_(torch::Library::IMPL, "aten", c10::DispatchKey::Meta, __FILE__, __LINE__),
      mode_(torch::Library::IMPL, "_", c10::DispatchKey::TESTING_ONLY_GenericMode, __FILE__,
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
  // As for the CPU's ops: one without a gradient of its own runs, and going back through it warns.
  autograd_fallback_.fallback(torch::autograd::basicAutogradNotImplementedFallback());
  mode_.fallback(torch::CppFunction::makeFromBoxedFunction<&create_on_meta>());
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
