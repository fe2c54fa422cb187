// SPDX-License-Identifier: Apache-2.0
//
// Activation checkpointing (Chen et al., arXiv 1604.06174): remat(fn, inputs...) is fn(inputs...), and
// what fn computed on the way is not kept for backward, which runs fn again.
//
//   for (auto& block : blocks) x = mt::remat(block, x);               // a module holder
//   auto [h, c] = mt::remat([=](const at::Tensor& x, const at::Tensor& h0) mutable {
//     return cell(x, h0);                                             // cell: a module holder
//   }, x, h0);
//
// fn takes tensors and returns a tensor, or pairs, tuples, arrays, vectors of them, nested as it likes.
// It is copied and lives until backward, so what it refers to must live as long: capture module holders
// by value, or `this` of a module. Inputs may be undefined, integer, not require gradients, sharded.
//
// The second run is the first one again: the same random numbers (of sharded tensors, and of libtorch's
// default generators of the CPU and the inputs' devices; the program's own next numbers are as without
// remat), the same Mode and autocast. In the ledger its scope is the path at forward plus "remat"; where
// backward is under scopes that forward was not under, below those.
//
// Gradients reach inputs and everything that fn closes over by the edges that fn's own graph has: once,
// through hooks as ever, in torch::autograd::grad too. A result requires a gradient where fn's does.
// Values and gradients are those of fn(inputs...) to the bit; where a tensor's gradient has three parts
// or more, inside and outside, they may be added in another order.
//
// With create_graph, second derivatives are right, and what the second run computed is kept for them.
//
// Not kept means after fn returned: while it runs, memory grows as without remat, as it does in the
// second run, too.
//
// Throws Error: fn writes an input in place; in backward: an input (libtorch's error) or a parameter was
// written since, fn gives other results or uses other tensors that require gradients than before, the
// graph is freed. Other effects of fn happen twice: batch norm's running statistics move two steps. A
// tensor without gradient that fn closes over must not change before backward: that is not noticed.
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <ranges>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace meshtorch {
namespace detail {

// One call of remat: made before fn's first run, finished after it.
class RematCall {
 public:
  using Function = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>& inputs)>;
  explicit RematCall(std::vector<at::Tensor> inputs);
  ~RematCall();
  RematCall(const RematCall&) = delete;
  RematCall& operator=(const RematCall&) = delete;

  // Replaces what fn computed by tensors of the same values whose backward calls `again`. The results
  // of `again` are the `outputs`, in this order.
  void finish(Function again, const std::vector<at::Tensor*>& outputs);

 private:
  struct FirstRun;
  std::unique_ptr<FirstRun> first_;  // null: nothing will ask for gradients
};

// Adds the tensors in `output` to `found`.
template <class T>
void find_tensors(T& output, std::vector<at::Tensor*>& found) {
  if constexpr (std::same_as<T, at::Tensor>) {
    found.push_back(&output);
  } else if constexpr (std::ranges::range<T>) {
    for (auto& part : output) find_tensors(part, found);
  } else {
    std::apply([&](auto&... part) { (find_tensors(part, found), ...); }, output);
  }
}

template <class T>
std::vector<at::Tensor*> tensors_in(T& output) {
  std::vector<at::Tensor*> found;
  find_tensors(output, found);
  return found;
}

template <class Input>
using AsTensor = const at::Tensor&;

}  // namespace detail

template <class Fn, class... Inputs>
requires(std::convertible_to<const Inputs&, at::Tensor>&&...) &&
    std::invocable<std::decay_t<Fn>&, detail::AsTensor<Inputs>...> auto remat(
        Fn&& fn, const Inputs&... inputs) {
  auto run = [fn = std::make_shared<std::decay_t<Fn>>(std::forward<Fn>(fn))](
                 const std::vector<at::Tensor>& given) {
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      return std::invoke(*fn, given[I]...);
    }
    (std::index_sequence_for<Inputs...>());
  };
  const std::vector<at::Tensor> tensors{at::Tensor(inputs)...};
  detail::RematCall call(tensors);
  auto output = run(tensors);
  call.finish(
      [run](const std::vector<at::Tensor>& given) {
        auto again = run(given);
        std::vector<at::Tensor> values;
        for (at::Tensor* tensor : detail::tensors_in(again)) values.push_back(std::move(*tensor));
        return values;
      },
      detail::tensors_in(output));
  return output;
}

}  // namespace meshtorch
