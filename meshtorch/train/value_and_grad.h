// SPDX-License-Identifier: Apache-2.0
//
// A function and its gradient with respect to a whole tree (tensor/tree.h), as jax.value_and_grad:
//
//   auto step = mt::value_and_grad([](const Model& model, const Tensor& x, const Tensor& y) {
//     return mse_loss(model.forward(x), y);
//   });
//   auto [loss, gradients] = step(model, x, y);      // gradients is a Model
//   model = mt::tree_map([](const Tensor& p, const Tensor& g) { return p - 0.1 * g; }, model, gradients);
//
// The value is a tensor of one element. A function that returns more returns a pair or tuple (value, more...),
// and so does the first of the result (JAX's has_aux):
//
//   auto [out, gradients] = mt::value_and_grad(loss_and_logits)(model, x);
//   auto [loss, logits] = out;
//
// What is differentiated:
//
//   a leaf of the tree                         in the gradient tree
//   a floating point or complex tensor         its gradient; zeros where the value does not depend on it
//   another tensor                             undefined
//   a parameter of a module                    the same; zeros of its dtype where it does not require one
//   a buffer of a module                       zeros of its dtype
//
// The leaves need not require gradients and nobody's .grad() changes. `fn` gets the tree with tensors of
// its own in place of plain ones, so that a tensor which it reaches by another way is a constant; modules
// it gets themselves (they are in the gradient tree as a clone). One tensor in several places has one
// gradient, their sum. Sharded leaves have gradients in the layouts that .grad() would have, perhaps
// unreduced over the axes of the batch.
//
// Only the first argument is differentiated: capture or bind others. Throws Error: a value that is not one
// floating point element, a module in the tree that cannot be cloned (tree.h).
#pragma once

#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <c10/core/GradMode.h>

#include <meshtorch/tensor/tree.h>

namespace meshtorch {

struct GradOptions {
  // The value, what comes with it and the gradients can be differentiated again, with respect to the
  // leaves too where those require gradients. Else they are constants.
  bool create_graph = false;
};

namespace tree_detail {

// The tensors of a tree made ready, and the gradients of a value.
class Differentiation {
 public:
  Differentiation(const TreeSlots& tree, GradOptions options);

  // What stands in each slot while the function runs.
  const std::vector<at::Tensor>& values() const { return values_; }
  // One a slot, after the function gave `value`.
  std::vector<at::Tensor> gradients(const at::Tensor& value) const;

 private:
  const TreeSlots& tree_;
  GradOptions options_;
  std::vector<std::size_t> first_;  // of tied slots
  std::vector<bool> of_module_;
  std::vector<at::Tensor> values_;
};

// The tensors of a result that are no module's, cut from their graph.
template <class Result>
void make_constant(Result& result) {
  for (const TreeSlot& slot : slots_of(result).slots) {
    if (slot.place != nullptr && slot.tensor.defined()) *slot.place = slot.tensor.detach();
  }
}

template <class Result>
const at::Tensor& value_of(const Result& result) {
  if constexpr (std::is_same_v<Result, at::Tensor>) {
    return result;
  } else {
    static_assert(std::is_same_v<std::tuple_element_t<0, Result>, at::Tensor>,
                  "the function returns a tensor, or a pair or tuple whose first element is one");
    return std::get<0>(result);
  }
}

template <class Fn, class Tree, class... Args>
auto value_and_grad(Fn& fn, GradOptions options, const Tree& tree, Args&&... args) {
  const c10::AutoGradMode gradients_are_on(true);
  const TreeSlots all = slots_of(tree);
  const Differentiation differentiation(all, options);
  Tree mine =
      with_values("value_and_grad", tree, all, differentiation.values(), NewLeaves::Modules::keep);
  auto result = std::invoke(fn, mine, std::forward<Args>(args)...);
  Tree gradients =
      with_values("value_and_grad", tree, all, differentiation.gradients(value_of(result)),
                  NewLeaves::Modules::clone,
                  options.create_graph ? NewLeaves::History::keep : NewLeaves::History::constant);
  if (!options.create_graph) make_constant(result);
  return std::pair(std::move(result), std::move(gradients));
}

}  // namespace tree_detail

// A function of (tree, args...) that gives std::pair(what fn gives, a tree of gradients). fn is called with
// (Tree&, args...).
template <class Fn>
auto value_and_grad(Fn fn, GradOptions options = {}) {
  return [fn = std::move(fn), options](const auto& tree, auto&&... args) mutable {
    return tree_detail::value_and_grad(fn, options, tree, std::forward<decltype(args)>(args)...);
  };
}

}  // namespace meshtorch
