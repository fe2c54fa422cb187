// SPDX-License-Identifier: Apache-2.0
#include "derived.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>

#include <meshtorch/base/error.h>
#include <meshtorch/tensor/op_info.h>
#include <meshtorch/tensor/runtime.h>
#include <meshtorch/tensor/sharded.h>
#include <meshtorch/tensor/sharding.h>

#include "compare.h"

namespace meshtorch::conformance {
namespace {

const std::multimap<std::string, c10::OperatorName>& ops_by_name() {
  static const auto index = [] {
    std::multimap<std::string, c10::OperatorName> found;
    for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames())
      found.emplace(name.name, name);
    return found;
  }();
  return index;
}

// What one run of a derived op leaves.
struct Outcome {
  Tensors operands;
  Tensors outputs;
  std::string thrown;
};

bool is_out(const c10::Argument& argument) {
  return argument.kwarg_only() && argument.alias_info() != nullptr &&
         argument.alias_info()->isWrite();
}

bool is_tensor_list(const c10::Argument& argument) {
  const auto list = argument.type()->cast<c10::ListType>();
  return list && list->getElementType()->kind() == c10::TypeKind::TensorType;
}

std::vector<c10::Argument> outs_of(const DerivedOp& op) {
  std::vector<c10::Argument> outs;
  for (const auto& argument : op.handle.schema().arguments()) {
    if (is_out(argument)) outs.push_back(argument);
  }
  return outs;
}

// All results are one argument, a list.
bool takes_one_list(const DerivedOp& op) {
  const auto outs = outs_of(op);
  return outs.size() == 1 && is_tensor_list(outs[0]);
}

bool is_list(const DerivedOp& op) {
  return op.form == DerivedOp::Form::list || op.form == DerivedOp::Form::list_in_place;
}

// The op's arguments, by name; a list form takes each tensor as a list of one.
torch::jit::Stack arguments_of(const Scene& scene, const DerivedOp& op, const Tensors& operands) {
  torch::jit::Stack stack = scene.instance.stack(operands);
  if (!is_list(op)) return stack;
  const auto& from = scene.instance.of().handle.schema();
  torch::jit::Stack lists;
  for (const auto& argument : op.handle.schema().arguments()) {
    const auto position =
        from.argumentIndexWithName(argument.name() == "tensors" ? "self" : argument.name());
    const c10::IValue& value = stack[static_cast<std::size_t>(*position)];
    lists.push_back(
        is_tensor_list(argument) ? c10::IValue(c10::List<at::Tensor>({value.toTensor()})) : value);
  }
  return lists;
}

// out= tensors are the last arguments of every schema.
Outcome run(const Scene& scene, const DerivedOp& op, Tensors operands, const Tensors& outs) {
  Outcome outcome{std::move(operands), {}, ""};
  torch::jit::Stack stack = arguments_of(scene, op, outcome.operands);
  if (takes_one_list(op)) {
    stack.emplace_back(c10::List<at::Tensor>(outs));
  } else {
    for (const at::Tensor& out : outs) stack.emplace_back(out);
  }
  const at::NoGradGuard no_gradients;
  try {
    outcome.outputs = call(op.handle, std::move(stack));
  } catch (const std::exception& error) {
    outcome.thrown = message_of(error);
  }
  return outcome;
}

Tensors copies(const Tensors& values) {
  Tensors result;
  for (const at::Tensor& x : values) result.push_back(x.defined() ? x.clone() : x);
  return result;
}

// It writes nothing but its out= tensors. (_fused_adam.out writes some of its operands, too.)
bool writes_outs_only(const c10::FunctionSchema& schema) {
  const auto& arguments = schema.arguments();
  return std::none_of(arguments.begin(), arguments.end(), [](const c10::Argument& argument) {
    return !argument.kwarg_only() && argument.alias_info() != nullptr &&
           argument.alias_info()->isWrite();
  });
}

// Every argument is the base op's: a list of tensors for a tensor, the others of the same type.
bool takes_lists(const c10::FunctionSchema& list, const c10::FunctionSchema& base) {
  if (list.arguments().size() != base.arguments().size() || base.returns().size() != 1)
    return false;
  for (std::size_t i = 0; i < base.arguments().size(); ++i) {
    const auto& mine = list.arguments()[i];
    const auto& its = base.arguments()[i];
    if (mine.name() != its.name() && !(mine.name() == "tensors" && its.name() == "self"))
      return false;
    const bool tensor = its.type()->kind() == c10::TypeKind::TensorType;
    if (tensor ? !is_tensor_list(mine) : *mine.type() != *its.type()) return false;
  }
  return true;
}

bool is_metadata(const DerivedOp& op) { return analyse(op.handle).kind == OpKind::metadata; }

// The operand that an in-place op writes: the first argument of every schema.
void check_layout_kept(const Scene& scene, const Placing& placing, const at::Tensor& written,
                       std::vector<std::string>& problems) {
  if (placing[0].plain || !is_sharded(written)) return;
  const NamedSharding sharding = sharding_of(written);
  const Layout layout = resolve(sharding.mesh, sharding.spec, written.dim());
  if (layout != placing[0].layout)
    problems.push_back(text("the written operand lies as ", sharding.spec, ", before as ",
                            to_string(scene.mesh, placing[0].layout)));
}

}  // namespace

std::string DerivedOp::name() const { return toString(handle.operator_name()); }

std::vector<DerivedOp> derived_ops(const c10::OperatorHandle& op) {
  using Form = DerivedOp::Form;
  std::vector<DerivedOp> found;
  if (op.schema().is_mutable()) return found;
  const std::string& name = op.schema().name();
  for (const Form form : {Form::in_place, Form::out}) {
    const auto [first, last] = ops_by_name().equal_range(form == Form::out ? name : name + "_");
    for (auto each = first; each != last; ++each) {
      const auto handle = c10::Dispatcher::singleton().findSchema(each->second);
      if (!handle || !handle->schema().is_mutable()) continue;
      if (form == Form::out && !writes_outs_only(handle->schema())) continue;
      const OpInfo info = analyse(*handle);
      if (info.functional && info.functional->operator_name() == op.operator_name())
        found.push_back({form, *handle});
    }
  }
  for (const Form form : {Form::list, Form::list_in_place}) {
    const std::string list_name =
        "aten::_foreach_" + name.substr(6) + (form == Form::list ? "" : "_");
    const auto [first, last] = ops_by_name().equal_range(list_name);
    for (auto each = first; each != last; ++each) {
      const auto handle = c10::Dispatcher::singleton().findSchema(each->second);
      if (handle && takes_lists(handle->schema(), op.schema())) found.push_back({form, *handle});
    }
  }
  return found;
}

bool can_run(const DerivedOp& op, const Reference& reference) {
  if (op.form != DerivedOp::Form::out) return true;
  for (const at::Tensor& output : reference.outputs) {
    if (!output.defined()) return false;
  }
  if (takes_one_list(op)) return !reference.outputs.empty();
  const auto outs = outs_of(op);
  return outs.size() == reference.outputs.size() &&
         std::none_of(outs.begin(), outs.end(), is_tensor_list);
}

Verdict check_derived(const Scene& scene, const DerivedOp& op, const Placing& placing) {
  const Reference& reference = scene.reference;
  Tensors outs;
  for (std::size_t o = 0; op.form == DerivedOp::Form::out && o < reference.outputs.size(); ++o) {
    const at::Tensor& model = reference.outputs[o];
    // In turn whole, and in pieces of the first dim.
    Layout layout = Layout::replicated(model.dim());
    if (model.dim() > 0 && (scene.seed + o) % 2 == 0)
      layout.dims[0].push_back(scene.mesh.rank() - 1);
    outs.push_back(put(at::zeros(model.sizes(), model.options()), scene.mesh, layout, 0));
  }
  // An out= form is held to the op itself: libtorch's binary_cross_entropy.out gives other values.
  const Outcome dense = op.form == DerivedOp::Form::out
                            ? Outcome{reference.after, reference.outputs, reference.thrown}
                            : run(scene, op, copies(reference.values), {});
  Tensors operands;
  for (std::size_t i = 0; i < placing.size(); ++i) {
    const at::Tensor& x = reference.values[i];
    operands.push_back(!x.defined()       ? x
                       : placing[i].plain ? x.clone()
                                          : put(x, scene.mesh, placing[i].layout, scene.seed + i));
    // As if the program had placed it: nothing may change its layout.
    if (x.defined() && !placing[i].plain)
      sharded_view(operands.back())->allocation()->placed = true;
  }
  const Outcome sharded = run(scene, op, std::move(operands), outs);
  if (!dense.thrown.empty()) {
    if (!sharded.thrown.empty()) return {{}, true};
    return {{"throws nothing, plain libtorch does: " + dense.thrown}};
  }
  if (!sharded.thrown.empty()) {
    if (is_metadata(op) && sharded.thrown.find("needs communication") != std::string::npos)
      return {};
    return {{"throws: " + sharded.thrown}};
  }
  std::vector<std::string> problems;
  auto compare = [&](const std::string& what, const at::Tensor& got, const at::Tensor& wanted) {
    const std::string problem =
        difference(got.defined() ? full(got.detach()) : got, wanted, reference.tolerance);
    if (!problem.empty())
      problems.push_back(what + " " + problem +
                         (got.defined() ? " (" + meshtorch::describe(got) + ")" : ""));
  };
  for (std::size_t i = 0; i < placing.size(); ++i)
    compare("operand " + scene.instance.name(i), sharded.operands[i], dense.operands[i]);
  for (std::size_t o = 0; o < outs.size(); ++o) compare(text("out ", o), outs[o], dense.outputs[o]);
  if (op.form == DerivedOp::Form::out && op.handle.schema().returns().empty()) return {problems};
  if (sharded.outputs.size() != dense.outputs.size())
    return {{text("gives ", sharded.outputs.size(), " results, expected ", dense.outputs.size())}};
  for (std::size_t o = 0; o < sharded.outputs.size(); ++o)
    compare(text("result ", o), sharded.outputs[o], dense.outputs[o]);
  if (op.in_place() && !is_metadata(op))
    check_layout_kept(scene, placing, sharded.operands[0], problems);
  return {problems};
}

}  // namespace meshtorch::conformance
