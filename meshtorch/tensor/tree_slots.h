// SPDX-License-Identifier: Apache-2.0
//
// The places of tensors in a tree, by which tree.h works. Internal to the library.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/pimpl.h>

#include <meshtorch/tree/rebuild.h>
#include <meshtorch/tree/rules.h>
#include <meshtorch/tree/walk.h>

namespace meshtorch {

// One place of a tensor, which may be undefined. Tensors of modules have no place of their own: they are
// changed by what they hold.
struct TreeSlot {
  std::string path;
  at::Tensor tensor;
  bool of_module = false;
  bool buffer = false;          // of a module
  at::Tensor* place = nullptr;  // of a tree that is not const, and no module
};

// A module in the tree: slots [first, first + count) are its.
struct TreeModule {
  std::string path;
  std::shared_ptr<torch::nn::Module> module;  // null where the tree holds it by value
  torch::nn::AnyModule any = {};  // which holds it, where one does: only this can make another
  std::size_t first = 0, count = 0;
};

struct TreeSlots {
  std::vector<TreeSlot> slots;
  std::vector<TreeModule> modules;

  // Parameters, then buffers, each in the order of named_parameters() and named_buffers().
  void add(const std::string& path, const torch::nn::Module& module,
           std::shared_ptr<torch::nn::Module> shared);
  // Of every defined slot, as rules see it.
  std::vector<Leaf> leaves() const;
};

namespace tree_detail {

template <class T>
inline constexpr bool kIsModule = std::is_base_of_v<torch::nn::Module, T>;
template <class T>
inline constexpr bool kModulePointer = false;
template <class T>
inline constexpr bool kModulePointer<std::shared_ptr<T>> = []() {
  if constexpr (walk_detail::Pointee<T>) return kIsModule<T>;
  return false;
}();
template <class T>
inline constexpr bool kModuleHandle =
    kModulePointer<T> || torch::detail::is_module_holder<T>::value ||
    std::is_same_v<T, torch::nn::AnyModule>;

template <class T>
inline constexpr bool kTreeLeaf = []() {
  if constexpr (std::is_same_v<T, at::Tensor>) return true;
  if constexpr (!std::is_class_v<T>) return false;
  return kIsModule<T> || kModuleHandle<T>;
}();

// Null of an empty handle.
template <class Handle>
std::shared_ptr<torch::nn::Module> module_of(const Handle& handle) {
  if constexpr (kModulePointer<Handle>) {
    return std::const_pointer_cast<std::remove_const_t<typename Handle::element_type>>(handle);
  } else {
    return handle.is_empty() ? nullptr : std::shared_ptr<torch::nn::Module>(handle.ptr());
  }
}

struct Collector {
  template <class T>
  static constexpr bool kLeaf = kTreeLeaf<T>;

  template <class T>
  void leaf(const std::string& path, T& found) {
    using Plain = std::remove_const_t<T>;
    if constexpr (std::is_same_v<T, at::Tensor>) {
      all.slots.push_back({.path = path, .tensor = found, .place = &found});
    } else if constexpr (std::is_same_v<Plain, at::Tensor>) {
      all.slots.push_back({.path = path, .tensor = found});
    } else if constexpr (kIsModule<Plain>) {
      all.add(path, found, nullptr);
    } else if (auto module = module_of(found)) {
      all.add(path, *module, module);
      if constexpr (std::is_same_v<Plain, torch::nn::AnyModule>) all.modules.back().any = found;
    }
  }

  TreeSlots all;
};

template <class Tree>
TreeSlots slots_of(Tree& tree) {
  Collector collector;
  walk(tree, collector);
  return std::move(collector.all);
}

// The new tensors' homes: clones of the modules of `old`, which hold them.
class NewLeaves {
 public:
  enum class Modules { clone, keep };
  // What a clone's tensors are to autograd: leaves that require a gradient as the old ones do; constants;
  // what has the graph of the value.
  enum class History { leaf, constant, keep };

  // values: one a slot of `old`. Throws Error with a path: a module that cannot be cloned, whose clone has
  // other leaves or unties tied ones; an undefined value for a module's tensor.
  NewLeaves(std::string op, const TreeSlots& old, const std::vector<at::Tensor>& values,
            Modules modules, History history = History::leaf);

  template <class T>
  static constexpr bool kLeaf = kTreeLeaf<T>;

  at::Tensor leaf(const std::string& path, const at::Tensor& old);
  template <class Handle>
  Handle leaf(const std::string&, const Handle& old) {
    static_assert(kModuleHandle<Handle>,
                  "a module by value is never copied: hold it by its holder or a shared_ptr");
    const auto module = module_of(old);
    if (module == nullptr) return old;
    next_ += counts_.at(module.get());
    if (keep_) return old;
    const auto made = copies_.at(module.get());
    if constexpr (std::is_same_v<Handle, torch::nn::AnyModule>) {
      return any_copies_.at(module.get());
    } else if constexpr (kModulePointer<Handle>) {
      return std::dynamic_pointer_cast<typename Handle::element_type>(made);
    } else {
      return Handle(std::dynamic_pointer_cast<typename Handle::ContainedType>(made));
    }
  }

  void skip(const std::string& path, const at::Tensor& old);
  template <class Handle>
  void skip(const std::string&, const Handle& old) {
    if constexpr (kIsModule<Handle>) {
      next_ += counts_.at(&old);
    } else if (const auto module = module_of(old)) {
      next_ += counts_.at(module.get());
    }
  }

 private:
  using Pair = std::pair<const void*, const void*>;

  void copy(const TreeModule& module, History history);
  std::shared_ptr<torch::nn::Module> clone(const TreeModule& old);
  void fill(const TreeSlot& was, const at::Tensor& value, const at::Tensor& handle,
            History history);
  bool claim(const TreeSlot& was, const at::Tensor& value, const at::Tensor& handle);
  static Pair key(const at::Tensor& old, const at::Tensor& value) {
    return {old.unsafeGetTensorImpl(), value.unsafeGetTensorImpl()};
  }
  std::string op_;
  const TreeSlots& old_;
  const std::vector<at::Tensor>& values_;
  bool keep_;
  std::size_t next_ = 0;
  std::map<const torch::nn::Module*, std::size_t> counts_;
  std::map<const torch::nn::Module*, std::shared_ptr<torch::nn::Module>> copies_;
  std::map<const torch::nn::Module*, torch::nn::AnyModule> any_copies_;
  // By old and new tensor: the clone's handle, and its path. Other places of the two share it.
  std::map<Pair, std::pair<at::Tensor, std::string>> homes_;
  // By the clone's handle: what it was given, and where.
  std::map<const void*, std::pair<at::Tensor, std::string>> given_;
  std::map<const at::Tensor*, at::Tensor> placed_;
};

// Other paths than the tree's: an Error that names the first that differs, and `which` tree.
void check_structure(const std::string& op, const TreeSlots& tree, const TreeSlots& other,
                     const std::string& which);

// One value for every slot, from one for every defined slot. Throws Error that names the first path
// without a value.
std::vector<at::Tensor> spread(const std::string& op, const TreeSlots& tree,
                               const std::vector<at::Tensor>& leaves);

template <class Tree>
Tree with_values(const std::string& op, const Tree& tree, const TreeSlots& slots,
                 const std::vector<at::Tensor>& values,
                 NewLeaves::Modules modules = NewLeaves::Modules::clone,
                 NewLeaves::History history = NewLeaves::History::leaf) {
  return rebuild(tree, NewLeaves(op, slots, values, modules, history));
}

// The first slot of each distinct tensor of several trees: slot i stands for itself where the result is i.
// Two slots are one where every tree has one tensor in both.
std::vector<std::size_t> first_of_tied(const std::vector<const TreeSlots*>& trees);

// Puts `value` where slot i, and those that are one with it, had their tensor.
void assign(const TreeSlots& tree, const std::vector<std::size_t>& first, std::size_t i,
            const at::Tensor& value);

// Gives the tensor behind every handle of `tensor` another value: also other sizes, layout, dtype, device.
void replace_value(const at::Tensor& tensor, const at::Tensor& value);

// What shard(), replicate() and device_get() of modules and trees are.
MatchReport shard(const TreeSlots& tree, const Mesh& mesh, const Rules& rules);
MatchReport replicate(const TreeSlots& tree, const Mesh& mesh);
void device_get(const TreeSlots& tree);

}  // namespace tree_detail
}  // namespace meshtorch
