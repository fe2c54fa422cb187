// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/tensor/module.h>

#include <torch/torch.h>

#include <set>

#include <meshtorch/tensor/memory.h>
#include <meshtorch/tensor/sharding.h>
#include <meshtorch/tensor/tree_slots.h>

namespace meshtorch {
namespace {

TreeSlots slots_of(const torch::nn::Module& module) {
  TreeSlots all;
  all.add("", module, nullptr);
  return all;
}

// Tensors reached by several paths share a tie.
std::vector<int> ties(const TreeSlots& tree) {
  const std::vector<std::size_t> first = tree_detail::first_of_tied({&tree});
  std::vector<int> ties(first.size(), -1);
  int count = 0;
  for (std::size_t i = 0; i < first.size(); ++i) {
    if (first[i] == i) continue;
    if (ties[first[i]] < 0) ties[first[i]] = count++;
    ties[i] = ties[first[i]];
  }
  return ties;
}

}  // namespace

std::vector<Leaf> TreeSlots::leaves() const {
  std::vector<Leaf> leaves;
  const std::vector<int> tie = ties(*this);
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const TreeSlot& slot = slots[i];
    if (!slot.tensor.defined()) continue;
    leaves.push_back({.path = slot.path,
                      .shape = slot.tensor.sizes().vec(),
                      .item_size = static_cast<std::int64_t>(slot.tensor.element_size()),
                      .tie = tie[i],
                      .buffer = slot.buffer});
  }
  return leaves;
}

namespace tree_detail {

MatchReport shard(const TreeSlots& tree, const Mesh& mesh, const Rules& rules) {
  torch::NoGradGuard no_grad;
  MatchReport report = rules.match(mesh, tree.leaves());
  std::set<const void*> done;
  auto match = report.matches.begin();
  for (const TreeSlot& slot : tree.slots) {
    if (!slot.tensor.defined()) continue;
    const PartitionSpec& spec = (match++)->spec;
    if (!done.insert(slot.tensor.unsafeGetTensorImpl()).second) continue;
    replace_value(slot.tensor, device_put(slot.tensor.detach(), {mesh, spec}));
    account_for(slot.tensor, Use::parameters);
  }
  return report;
}

MatchReport replicate(const TreeSlots& tree, const Mesh& mesh) {
  return shard(tree, mesh, Rules().otherwise(Unmatched::replicate));
}

void device_get(const TreeSlots& tree) {
  torch::NoGradGuard no_grad;
  for (const TreeSlot& slot : tree.slots) {
    if (!slot.tensor.defined() || !is_sharded(slot.tensor)) continue;
    replace_value(slot.tensor, full(slot.tensor.detach()));
  }
}

}  // namespace tree_detail

MatchReport shard(torch::nn::Module& module, const Mesh& mesh, const Rules& rules) {
  return tree_detail::shard(slots_of(module), mesh, rules);
}

MatchReport replicate(torch::nn::Module& module, const Mesh& mesh) {
  return tree_detail::replicate(slots_of(module), mesh);
}

void device_get(torch::nn::Module& module) { tree_detail::device_get(slots_of(module)); }

}  // namespace meshtorch
