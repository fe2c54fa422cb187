// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/tensor/tree.h>

#include <torch/torch.h>

#include <algorithm>

#include <meshtorch/base/error.h>
#include <meshtorch/tensor/draws.h>
#include <meshtorch/tensor/sharded.h>
#include <meshtorch/tree/path.h>

namespace meshtorch {
namespace {

std::shared_ptr<torch::nn::Module> clone_of(const std::string& op, const TreeModule& old) {
  if (old.module == nullptr) {
    fail({.op = op,
          .where = old.path,
          .what = "a module by value cannot be made anew",
          .remedy = "hold it by its holder or a shared_ptr"});
  }
  const undrawn_scope undrawn;  // reset() draws initial values, which nobody wants
  try {
    return old.module->clone();
  } catch (const c10::Error& error) {
    fail({.op = op,
          .where = old.path,
          .what = text("module ", old.module->name(),
                       " cannot be cloned: ", error.what_without_backtrace()),
          .remedy =
              "derive it and its children from torch::nn::Cloneable, with what it registers in "
              "reset()"});
  }
}

}  // namespace

void TreeSlots::add(const std::string& path, const torch::nn::Module& module,
                    std::shared_ptr<torch::nn::Module> shared) {
  TreeModule held{.path = path, .module = std::move(shared), .first = slots.size()};
  for (const auto& item : module.named_parameters())
    slots.push_back(
        {.path = join_path(path, item.key()), .tensor = item.value(), .of_module = true});
  for (const auto& item : module.named_buffers())
    slots.push_back({.path = join_path(path, item.key()),
                     .tensor = item.value(),
                     .of_module = true,
                     .buffer = true});
  held.count = slots.size() - held.first;
  modules.push_back(std::move(held));
}

namespace tree_detail {

void replace_value(const at::Tensor& tensor, const at::Tensor& value) {
  torch::NoGradGuard no_grad;
  if (tensor.is_meta() || value.is_meta()) {
    convert(tensor, value);  // whose device is another: set_data would refuse
  } else {
    tensor.set_data(value);
  }
}

void assign(const TreeSlots& tree, const std::vector<std::size_t>& first, std::size_t i,
            const at::Tensor& value) {
  const at::Tensor old = tree.slots[i].tensor;
  if (value.is_same(old)) return;
  std::vector<const TreeSlot*> mine;
  for (std::size_t j = i; j < first.size(); ++j) {
    if (first[j] == i) mine.push_back(&tree.slots[j]);
  }
  // A handle that is not ours to assign sees the new value in the old tensor, as do all others.
  const bool inside = std::any_of(mine.begin(), mine.end(),
                                  [](const TreeSlot* slot) { return slot->place == nullptr; });
  if (!inside) {
    for (const TreeSlot* slot : mine) *slot->place = value;
    return;
  }
  if (!value.defined()) {
    fail({.op = "tree_for_each",
          .where = tree.slots[i].path,
          .what = "an undefined tensor was assigned to a module's"});
  }
  replace_value(old, value.detach());
}

std::vector<std::size_t> first_of_tied(const std::vector<const TreeSlots*>& trees) {
  std::map<std::vector<const void*>, std::size_t> seen;
  std::vector<std::size_t> first;
  for (std::size_t i = 0; i < trees.front()->slots.size(); ++i) {
    std::vector<const void*> key;
    for (const TreeSlots* tree : trees) key.push_back(tree->slots[i].tensor.unsafeGetTensorImpl());
    first.push_back(seen.emplace(std::move(key), i).first->second);
  }
  return first;
}

void check_structure(const std::string& op, const TreeSlots& tree, const TreeSlots& other,
                     const std::string& which) {
  const std::size_t n = std::max(tree.slots.size(), other.slots.size());
  const auto path = [](const TreeSlots& slots, std::size_t i) {
    return i < slots.slots.size() ? slots.slots[i].path : std::string("no more leaf");
  };
  for (std::size_t i = 0; i < n; ++i) {
    if (i < tree.slots.size() && i < other.slots.size() && path(tree, i) == path(other, i))
      continue;
    fail({.op = op,
          .where = path(tree, i),
          .what = text("the trees differ in structure: ", which, " has ", path(other, i), " here"),
          .remedy = "give trees with the same paths"});
  }
}

std::vector<at::Tensor> spread(const std::string& op, const TreeSlots& tree,
                               const std::vector<at::Tensor>& leaves) {
  std::vector<at::Tensor> values(tree.slots.size());
  std::size_t next = 0;
  std::string missing;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!tree.slots[i].tensor.defined()) continue;
    if (next < leaves.size()) values[i] = leaves[next];
    if (next++ == leaves.size()) missing = tree.slots[i].path;
  }
  if (next == leaves.size()) return values;
  fail({.op = op,
        .where = missing,
        .what = text("got ", leaves.size(), " leaves for a tree that has ", next),
        .remedy = "give one tensor for each of tree_leaves(like), in that order"});
}

NewLeaves::NewLeaves(std::string op, const TreeSlots& old, const std::vector<at::Tensor>& values,
                     Modules modules, History history)
    : op_(std::move(op)), old_(old), values_(values), keep_(modules == Modules::keep) {
  for (const TreeModule& module : old.modules) counts_[module.module.get()] = module.count;
  if (keep_) return;
  // A module that is also held alone is the child of a clone, not a clone of its own.
  std::vector<const TreeModule*> largest_first;
  for (const TreeModule& module : old.modules) {
    if (module.module == nullptr) clone_of(op_, module);  // throws
    largest_first.push_back(&module);
  }
  std::stable_sort(largest_first.begin(), largest_first.end(), [](const auto* a, const auto* b) {
    const auto size = [](const TreeModule* m) { return m->module->modules().size(); };
    return std::pair(size(a), !a->any.is_empty()) > std::pair(size(b), !b->any.is_empty());
  });
  for (const TreeModule* module : largest_first) copy(*module, history);
}

std::shared_ptr<torch::nn::Module> NewLeaves::clone(const TreeModule& old) {
  if (!old.any.is_empty()) {
    const undrawn_scope undrawn;  // reset() draws initial values, which nobody wants
    return any_copies_.emplace(old.module.get(), old.any.clone()).first->second.ptr();
  }
  return clone_of(op_, old);
}

void NewLeaves::copy(const TreeModule& old, History history) {
  if (!copies_.contains(old.module.get())) {
    const auto made = clone(old);
    const auto olds = old.module->modules(), news = made->modules();
    if (olds.size() != news.size()) {
      fail({.op = op_,
            .where = old.path,
            .what = text("clone() has ", news.size(), " modules, not ", olds.size()),
            .remedy = "register children in reset()"});
    }
    for (std::size_t i = 0; i < olds.size(); ++i) copies_.emplace(olds[i].get(), news[i]);
  } else if (!old.any.is_empty() && !any_copies_.contains(old.module.get())) {
    fail({.op = op_,
          .where = old.path,
          .what = "an AnyModule whose module is also held by another module cannot be made anew",
          .remedy = "hold it by its holder"});
  }
  TreeSlots made;
  made.add(old.path, *copies_.at(old.module.get()), nullptr);
  for (std::size_t i = 0; i < old.count; ++i) {
    const TreeSlot& was = old_.slots[old.first + i];
    if (i >= made.slots.size() || made.slots[i].path != was.path ||
        made.slots[i].tensor.defined() != was.tensor.defined()) {
      fail({.op = op_,
            .where = was.path,
            .what = "clone() has other parameters or buffers",
            .remedy = "register them in reset()"});
    }
    if (was.tensor.defined()) fill(was, values_[old.first + i], made.slots[i].tensor, history);
  }
}

void NewLeaves::fill(const TreeSlot& was, const at::Tensor& value, const at::Tensor& handle,
                     History history) {
  if (!value.defined()) {
    fail({.op = op_, .where = was.path, .what = "an undefined tensor for a module's"});
  }
  if (!claim(was, value, handle)) return;
  handle.requires_grad_(false);
  replace_value(handle, value.detach());
  if (history == History::keep && value.grad_fn() != nullptr) {
    torch::autograd::impl::set_gradient_edge(handle, torch::autograd::impl::gradient_edge(value));
  } else if (history == History::leaf &&
             torch::autograd::isDifferentiableType(value.scalar_type())) {
    handle.requires_grad_(was.tensor.requires_grad());
  }
}

// False where the handle has the value already.
bool NewLeaves::claim(const TreeSlot& was, const at::Tensor& value, const at::Tensor& handle) {
  const auto home = homes_.emplace(key(was.tensor, value), std::pair(handle, was.path)).first;
  if (!home->second.first.is_same(handle)) {
    fail({.op = op_,
          .where = was.path,
          .what = text("is one tensor with ", home->second.second,
                       ", but not in the clone(): libtorch's unties what modules share"),
          .remedy = "override clone() so that it ties them, or register one module twice"});
  }
  const auto [given, first] =
      given_.emplace(handle.unsafeGetTensorImpl(), std::pair(value, was.path));
  if (!given->second.first.is_same(value)) {
    fail(
        {.op = op_,
         .where = was.path,
         .what = text("is one tensor with ", given->second.second, ", but was given another value"),
         .remedy = "give tied leaves one tensor"});
  }
  return first;
}

at::Tensor NewLeaves::leaf(const std::string&, const at::Tensor& old) {
  const at::Tensor& value = values_[next_++];
  placed_.emplace(&old, value);
  if (!old.defined() || !value.defined()) return value;
  const auto home = homes_.find(key(old, value));
  return home == homes_.end() ? value : home->second.first;
}

void NewLeaves::skip(const std::string& path, const at::Tensor& old) {
  const at::Tensor& value = values_[next_++];
  if (placed_.at(&old).is_same(value)) return;
  fail({.op = op_,
        .where = path,
        .what = "is in a node that several pointers hold, but was given another value than there",
        .remedy = "give tied leaves one tensor"});
}

}  // namespace tree_detail
}  // namespace meshtorch
