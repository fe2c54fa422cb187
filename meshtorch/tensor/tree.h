// SPDX-License-Identifier: Apache-2.0
//
// Trees of tensors: any nesting of tensors, torch::nn modules, containers and structs of your own, without
// anything written for them (tree/walk.h lists what nests; private members join by one line of
// Boost.Describe).
//
//   struct Block { Tensor up, down; std::optional<Tensor> bias; };
//   struct Model { torch::nn::Embedding tokens; std::vector<Block> layers; std::map<std::string, Tensor> heads; };
//
//   for (const auto& [path, tensor] : mt::tree_leaves_with_path(model)) ...
//   //   tokens.weight, layers.0.up, layers.0.down, layers.0.bias, ..., heads.lm
//   Model halves = mt::tree_map([](const Tensor& x) { return x.to(torch::kHalf); }, model);
//   Model next = mt::tree_map([](const Tensor& p, const Tensor& g) { return p - 0.1 * g; }, model, gradients);
//   mt::shard(model, mesh, mt::PathRules{{"up", P("tp")}, {"down", P(whole, "tp")}, {"", P()}});   // in place
//
// Leaves are tensors. Those of a module are its parameters, then its buffers, under libtorch's own paths; it may be held by its holder
// (torch::nn::Linear), a std::shared_ptr or an AnyModule. Undefined tensors are no leaves and stay undefined. Everything else
// (numbers, strings, options) is passed over, and copied into new trees.
//
// One tensor in several places (tied weights) is a leaf under each path; functions are applied to it
// once, and it is one tensor in the result as well.
//
// New trees share nothing with the old one but what `fn` returns unchanged. A module in a new tree is a
// clone() (torch::nn::Cloneable) whose tensors hold the new values; they are autograd leaves that require
// gradients as the old ones do.
//
// A field that is optional, a pointer or a variant has the path of what it holds.
#pragma once

#include <array>
#include <concepts>
#include <string>
#include <utility>
#include <vector>

#include <meshtorch/mesh/mesh.h>
#include <meshtorch/tensor/module.h>
#include <meshtorch/tensor/tree_slots.h>

namespace meshtorch {

struct PathLeaf {
  std::string path;
  at::Tensor tensor;
};

// All leaves in the order of walk.h, the same on every process. The tensors are handles: changing one
// in place changes the tree's.
template <class Tree>
std::vector<PathLeaf> tree_leaves_with_path(const Tree& tree) {
  std::vector<PathLeaf> leaves;
  for (auto& slot : tree_detail::slots_of(tree).slots) {
    if (slot.tensor.defined()) leaves.push_back({std::move(slot.path), std::move(slot.tensor)});
  }
  return leaves;
}

// Without the paths.
template <class Tree>
std::vector<at::Tensor> tree_leaves(const Tree& tree) {
  std::vector<at::Tensor> leaves;
  for (auto& slot : tree_detail::slots_of(tree).slots) {
    if (slot.tensor.defined()) leaves.push_back(std::move(slot.tensor));
  }
  return leaves;
}

// Each tensor that requires a gradient, once: what an optimizer is given.
//
//   torch::optim::AdamW optimizer(mt::tree_parameters(model), AdamWOptions(3e-4));
template <class Tree>
std::vector<at::Tensor> tree_parameters(const Tree& tree) {
  const TreeSlots all = tree_detail::slots_of(tree);
  const auto first = tree_detail::first_of_tied({&all});
  std::vector<at::Tensor> parameters;
  for (std::size_t i = 0; i < all.slots.size(); ++i) {
    const at::Tensor& tensor = all.slots[i].tensor;
    if (first[i] == i && tensor.defined() && tensor.requires_grad()) parameters.push_back(tensor);
  }
  return parameters;
}

// A tree of `like`'s type and structure that holds these leaves, in the order of tree_leaves(like). Throws
// Error: another number of leaves (named is the first path without one), two tensors for tied tensors of a
// module, a module that has no clone().
template <class Tree>
Tree tree_unflatten(const Tree& like, const std::vector<at::Tensor>& leaves) {
  const TreeSlots all = tree_detail::slots_of(like);
  return tree_detail::with_values("tree_unflatten", like, all,
                                  tree_detail::spread("tree_unflatten", all, leaves));
}

namespace tree_detail {

template <class Fn, class... Tensors>
at::Tensor call(Fn& fn, const std::string& path, const Tensors&... tensors) {
  if constexpr (std::invocable<Fn&, const std::string&, const Tensors&...>) {
    return fn(path, tensors...);
  } else {
    return fn(tensors...);
  }
}

}  // namespace tree_detail

// A tree of fn(tensor, rest...) or fn(path, tensor, rest...), whichever fn takes. `rest` are trees with the
// same paths, of any types; where one of them is undefined at a leaf of `tree`, fn gets an undefined tensor.
// fn is called once for what is one tensor in every tree, with the first path. Throws Error: a tree with
// other paths (the first that differs is named), an undefined result for a module's tensor, and as
// tree_unflatten.
//
// A parameter of a module requires a gradient, so what fn computes from it has a graph: the clone's
// parameters are cut from it.
template <class Fn, class Tree, class... Rest>
Tree tree_map(Fn&& fn, const Tree& tree, const Rest&... rest) {
  const TreeSlots all = tree_detail::slots_of(tree);
  const std::array<TreeSlots, sizeof...(Rest)> others{tree_detail::slots_of(rest)...};
  std::vector<const TreeSlots*> trees{&all};
  for (const TreeSlots& other : others) {
    trees.push_back(&other);
    tree_detail::check_structure("tree_map", all, other,
                                 "tree " + std::to_string(trees.size() - 1) + " of the rest");
  }
  const auto first = tree_detail::first_of_tied(trees);
  std::vector<at::Tensor> values(all.slots.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto& slot = all.slots[i];
    if (!slot.tensor.defined()) continue;
    values[i] =
        first[i] != i ? values[first[i]] : [&]<std::size_t... k>(std::index_sequence<k...>) {
      return tree_detail::call(fn, slot.path, slot.tensor, others[k].slots[i].tensor...);
    }
    (std::index_sequence_for<Rest...>{});
  }
  return tree_detail::with_values("tree_map", tree, all, values);
}

// fn(path, tensor&) for each distinct tensor, in place: fn may write into it or assign another tensor, which
// then is in every place of the old one. A module's tensor takes the other's value (as set_data does), so
// that every handle of it sees the new one.
template <class Tree, class Fn>
requires std::invocable<Fn&, const std::string&, at::Tensor&>
void tree_for_each(Tree& tree, Fn&& fn) {
  const TreeSlots all = tree_detail::slots_of(tree);
  const auto first = tree_detail::first_of_tied({&all});
  for (std::size_t i = 0; i < first.size(); ++i) {
    if (first[i] != i || !all.slots[i].tensor.defined()) continue;
    at::Tensor tensor = all.slots[i].tensor;
    fn(std::as_const(all.slots[i].path), tensor);
    tree_detail::assign(all, first, i, tensor);
  }
}

// Trees for which module.h and sharding.h have no function of their own.
template <class Tree>
concept TreeOfTensors =
    !std::is_base_of_v<torch::nn::Module, Tree> && !std::is_base_of_v<at::Tensor, Tree>;

// Lays every leaf out by the rules, in place: every handle of a tensor sees the sharded one. Leaves that no
// rule names are an error unless rules.otherwise says what they get; buffers of modules are then
// replicated. Nothing is changed where an Error is thrown.
template <TreeOfTensors Tree>
MatchReport shard(const Tree& tree, const Mesh& mesh, const Rules& rules) {
  return tree_detail::shard(tree_detail::slots_of(tree), mesh, rules);
}

// Every leaf whole on every device, in place.
template <TreeOfTensors Tree>
MatchReport replicate(const Tree& tree, const Mesh& mesh) {
  return tree_detail::replicate(tree_detail::slots_of(tree), mesh);
}

// Back to plain tensors, in place.
template <TreeOfTensors Tree>
void device_get(const Tree& tree) {
  tree_detail::device_get(tree_detail::slots_of(tree));
}

}  // namespace meshtorch
