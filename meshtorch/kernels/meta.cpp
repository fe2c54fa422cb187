// SPDX-License-Identifier: Apache-2.0
//
// Shape functions, for the ops that libtorch has none for, so that they run on meta shards. Most need
// no words: an op's rule tells the sizes of its results, and a result has the type of the op's first
// floating-point tensor. Here is what the rule does not tell.
#include <ATen/ATen.h>

#include <algorithm>

#include <meshtorch/base/error.h>
#include <meshtorch/kernels/kernels.h>
#include <meshtorch/kernels/meta_shapes.h>
#include <meshtorch/tensor/decision.h>
#include <meshtorch/tensor/dispatch.h>
#include <meshtorch/tensor/runtime.h>

namespace meshtorch {
namespace {

using at::Tensor;

// Types of the results by op, where they are not the first floating-point operand's.
const std::map<std::string, std::vector<at::ScalarType>>& result_types() {
  static const std::map<std::string, std::vector<at::ScalarType>> types{
      {"aten::isnan", {at::kBool}},
      {"aten::max_pool3d_with_indices", {at::ScalarType::Undefined, at::kLong}},
      {"aten::fractional_max_pool2d", {at::ScalarType::Undefined, at::kLong}},
      {"aten::native_dropout", {at::ScalarType::Undefined, at::kBool}},
  };
  return types;
}

const Tensor* model_of(const Frame& frame) {
  const Tensor* first = nullptr;
  for (const Tensor& tensor : frame.tensors) {
    if (!tensor.defined()) continue;
    if (tensor.is_floating_point() || tensor.is_complex()) return &tensor;
    if (first == nullptr) first = &tensor;
  }
  return first;
}

// Results by the op's rule. The rule is looked for at the first call: a program may add it later.
class ByRule final : public c10::OperatorKernel {
 public:
  explicit ByRule(const OpRegistry& rules) : rules_(rules) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
    if (!info_) {
      info_ = std::make_unique<OpInfo>(analyse(op));
      if (info_->kind == OpKind::out && info_->functional)
        functional_ = std::make_unique<OpInfo>(analyse(*info_->functional));
    }
    const std::size_t count = info_->arguments.size();
    const Frame frame(*info_, stack->data() + stack->size() - count);
    torch::jit::Stack results;
    if (info_->kind == OpKind::out) {
      results = resized(frame);
    } else if (returns_written()) {
      for (const ReturnInfo& returned : info_->returns)
        results.push_back(frame.arguments[returned.written_argument]);
    } else {
      results = fresh(frame);
    }
    stack->erase(stack->end() - static_cast<std::ptrdiff_t>(count), stack->end());
    for (auto& result : results) stack->push_back(std::move(result));
  }

 private:
  // An in-place op; others write statistics beside what they make.
  bool returns_written() const {
    return info_->writes &&
           std::all_of(info_->returns.begin(), info_->returns.end(),
                       [](const ReturnInfo& r) { return r.written_argument >= 0; });
  }

  OpRule rule(const Frame& frame) const {
    const OpEntry* entry = rules_.find(info_->base);
    TORCH_CHECK_NOT_IMPLEMENTED(entry != nullptr, info_->name, " has no shape function");
    OpRule rule = entry->rule(op_call(frame));
    TORCH_CHECK_NOT_IMPLEMENTED(rule.outputs.size() == info_->returns.size(), info_->name,
                                ": its rule does not tell each result");
    return rule;
  }

  Shape sizes(const OpRule& rule, std::size_t output) const {
    Shape sizes = output_extents(rule, output);
    for (const std::int64_t size : sizes) {
      TORCH_CHECK_NOT_IMPLEMENTED(size >= 0, info_->name,
                                  ": its rule does not tell all sizes of its results");
    }
    return sizes;
  }

  // Composites make an empty result of the right type and leave its sizes to the op with out=.
  torch::jit::Stack resized(const Frame& frame) const {
    // The functional op's arguments are those before the results.
    TORCH_CHECK_NOT_IMPLEMENTED(functional_, info_->name, " has no shape function");
    const OpRule bound = rule(Frame(*functional_, frame.arguments));
    TORCH_CHECK_NOT_IMPLEMENTED(returns_written(), info_->name, " has no shape function");
    torch::jit::Stack results;
    for (std::size_t o = 0; o < bound.outputs.size(); ++o) {
      Tensor out = frame.arguments[info_->returns[o].written_argument].toTensor();
      const Shape wanted = sizes(bound, o);
      if (out.sizes() != wanted) out.resize_(wanted);
      results.emplace_back(std::move(out));
    }
    return results;
  }

  torch::jit::Stack fresh(const Frame& frame) const {
    const OpRule bound = rule(frame);
    const Tensor& model = *model_of(frame);
    const int mask = info_->argument("output_mask");
    const auto types = result_types().find(info_->base);
    torch::jit::Stack results;
    for (std::size_t o = 0; o < bound.outputs.size(); ++o) {
      if (mask >= 0 && !frame.arguments[mask].toBoolList().get(o)) {
        results.emplace_back(Tensor());
        continue;
      }
      auto type = model.scalar_type();
      if (types != result_types().end() && types->second[o] != at::ScalarType::Undefined)
        type = types->second[o];
      const Shape shape = sizes(bound, o);
      const auto options = model.options().dtype(type);
      results.emplace_back(model.sizes() == shape ? at::empty_like(model, options)
                                                  : at::empty(shape, options));
    }
    return results;
  }

  const OpRegistry& rules_;
  std::unique_ptr<OpInfo> info_, functional_;
};

bool has_shape_function(const c10::OperatorHandle& op) {
  using c10::DispatchKey;
  return op.hasKernelForDispatchKey(DispatchKey::Meta) ||
         op.hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutograd) ||
         op.hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutogradNonFunctional) ||
         op.hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd);
}

void add_by_rule(Dispatch& dispatch) {
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (name.name.rfind("aten::", 0) != 0) continue;
    const auto op = dispatcher.findSchema(name);
    if (!op || has_shape_function(*op)) continue;
    dispatch.meta_library().impl(toString(name).c_str(),
                                 torch::CppFunction::makeFromBoxedFunctor(
                                     std::make_unique<ByRule>(dispatch.runtime().rules())));
  }
}

}  // namespace

bool lacks_shape_function(const std::string& name, const std::string& overload) {
  const auto op = c10::Dispatcher::singleton().findSchema({name, overload});
  return op && !op->hasKernelForDispatchKey(c10::DispatchKey::Meta);
}

void install_meta(Dispatch& dispatch) {
  add_shapes_by_hand(dispatch.meta_library());
  add_shapes_by_name(dispatch.meta_library());
  add_shapes_by_running(dispatch.meta_library());
  add_by_rule(dispatch);
}

}  // namespace meshtorch
