// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/train/value_and_grad.h>

#include <torch/torch.h>

#include <meshtorch/base/error.h>

namespace meshtorch::tree_detail {
namespace {

bool differentiable(const at::Tensor& tensor) {
  return tensor.defined() && torch::autograd::isDifferentiableType(tensor.scalar_type());
}

// Slots that are one with a module's tensor are that tensor.
std::vector<bool> with_module(const TreeSlots& tree, const std::vector<std::size_t>& first) {
  std::vector<bool> with(first.size());
  for (std::size_t i = 0; i < first.size(); ++i)
    if (tree.slots[i].of_module) with[first[i]] = true;
  for (std::size_t i = 0; i < first.size(); ++i) with[i] = with[first[i]];
  return with;
}

void check_value(const at::Tensor& value) {
  if (differentiable(value) && value.numel() == 1) return;
  fail({.op = "value_and_grad",
        .where = "value",
        .what = value.defined() ? text("got a tensor of shape ", value.sizes(), " and dtype ",
                                       value.scalar_type(), ", expected one floating point element")
                                : "got an undefined tensor, expected one floating point element",
        .remedy = "reduce it with sum() or mean()"});
}

}  // namespace

Differentiation::Differentiation(const TreeSlots& tree, GradOptions options)
    : tree_(tree),
      options_(options),
      first_(first_of_tied({&tree})),
      of_module_(with_module(tree, first_)) {
  for (std::size_t i = 0; i < first_.size(); ++i) {
    const at::Tensor& old = tree.slots[i].tensor;
    if (first_[i] != i) {
      values_.push_back(values_[first_[i]]);
    } else if (of_module_[i] || !differentiable(old)) {
      values_.push_back(old);
    } else if (options.create_graph && old.requires_grad()) {
      values_.push_back(old.view_as(old));  // the graph goes on behind it
    } else {
      values_.push_back(old.detach().requires_grad_());
    }
  }
}

std::vector<at::Tensor> Differentiation::gradients(const at::Tensor& value) const {
  check_value(value);
  std::vector<at::Tensor> inputs;
  std::vector<std::size_t> slots;
  for (std::size_t i = 0; i < values_.size(); ++i) {
    if (first_[i] != i || !values_[i].defined() || !values_[i].requires_grad()) continue;
    inputs.push_back(values_[i]);
    slots.push_back(i);
  }
  std::vector<at::Tensor> all(values_.size());
  if (value.requires_grad() && !inputs.empty()) {
    const auto some = torch::autograd::grad({value}, inputs, {}, options_.create_graph,
                                            options_.create_graph, /*allow_unused=*/true);
    for (std::size_t k = 0; k < some.size(); ++k) all[slots[k]] = some[k];
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    const at::Tensor& old = tree_.slots[i].tensor;
    if (first_[i] != i) {
      all[i] = all[first_[i]];
    } else if (!all[i].defined() && (differentiable(old) || (old.defined() && of_module_[i]))) {
      all[i] = torch::zeros_like(old.detach());
    }
  }
  return all;
}

}  // namespace meshtorch::tree_detail
