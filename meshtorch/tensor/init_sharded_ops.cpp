// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/tensor/init_sharded_ops.h>

#include <algorithm>
#include <set>

namespace meshtorch {
namespace {

using Names = std::set<std::string, std::less<>>;

const Names& factories() {
  static const Names names{"empty", "empty_strided", "full", "ones", "rand", "randn", "zeros"};
  return names;
}

const Names& exact_ops() {
  static const Names names{"abs_",  "add_",  "clamp_", "clamp_max_", "clamp_min_",
                           "div_",  "fill_", "mul_",   "neg_",       "normal_",
                           "sqrt_", "sub_",  "zero_",  "uniform_"};
  return names;
}

const Names& readers() {
  static const Names names{"_has_compatible_shallow_copy_type",
                           "_to_copy",
                           "alias",
                           "clone",
                           "contiguous",
                           "detach",
                           "detach_",
                           "empty_like",
                           "full_like",
                           "is_same_size",
                           "new_empty",
                           "new_full",
                           "new_ones",
                           "new_zeros",
                           "ones_like",
                           "rand_like",
                           "randn_like",
                           "requires_grad_",
                           "set_data",
                           "to",
                           "zeros_like"};
  return names;
}

// "empty" of "aten::empty.memory_format"; nothing of other namespaces.
std::string base_name(const c10::OperatorHandle& op) {
  const std::string& name = op.operator_name().name;
  return name.rfind("aten::", 0) == 0 ? name.substr(6) : "";
}

bool writes(const c10::OperatorHandle& op) {
  return std::ranges::any_of(op.schema().arguments(), [](const c10::Argument& argument) {
    return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
  });
}

}  // namespace

std::string full_name(const c10::OperatorHandle& op) { return c10::toString(op.operator_name()); }

c10::IValue* arguments_of(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  return stack.data() + stack.size() - op.schema().arguments().size();
}

c10::IValue* find_argument(const c10::OperatorHandle& op, torch::jit::Stack& stack,
                           std::string_view name) {
  const auto& arguments = op.schema().arguments();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].name() == name) return arguments_of(op, stack) + i;
  }
  return nullptr;
}

// A default device and layout: what names its own means to have it there.
bool is_factory(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  if (!factories().contains(base_name(op)) || find_argument(op, stack, "names") != nullptr)
    return false;
  const auto* device = find_argument(op, stack, "device");
  const auto* layout = find_argument(op, stack, "layout");
  return device != nullptr && device->isNone() && layout != nullptr &&
         (layout->isNone() || layout->toLayout() == at::kStrided);
}

bool is_exact(const c10::OperatorHandle& op) { return exact_ops().contains(base_name(op)); }

bool copies_or_measures(const c10::OperatorHandle& op) { return readers().contains(base_name(op)); }

bool gives_view(const c10::OperatorHandle& op) {
  return !writes(op) && std::ranges::any_of(op.schema().returns(), [](const c10::Argument& made) {
    return made.alias_info() != nullptr;
  });
}

bool fills(const c10::OperatorHandle& op) {
  return full_name(op) == "aten::fill_.Scalar" || full_name(op) == "aten::zero_";
}

bool draws_normals(const c10::OperatorHandle& op) {
  static const Names names{"normal_", "randn", "randn_like"};
  return names.contains(base_name(op));
}

bool reads_values(const c10::OperatorHandle& op) {
  static const Names names{"_local_scalar_dense", "equal", "is_nonzero", "item"};
  return names.contains(base_name(op));
}

}  // namespace meshtorch
