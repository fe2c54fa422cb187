// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/tensor/module.h>

#include <torch/torch.h>

#include <map>

#include <meshtorch/tensor/memory.h>
#include <meshtorch/tensor/sharded.h>
#include <meshtorch/tensor/sharding.h>

namespace meshtorch {
namespace {

struct Named {
  Leaf leaf;
  at::Tensor tensor;
};

// Leaves of one kind; tensors reached by several paths share a tie.
template <class Dict>
std::vector<Named> leaves_of(const Dict& dict) {
  std::map<const void*, std::vector<std::size_t>> paths;
  std::vector<Named> leaves;
  for (const auto& item : dict) {
    if (!item.value().defined()) continue;
    paths[item.value().unsafeGetTensorImpl()].push_back(leaves.size());
    leaves.push_back({.leaf = {.path = item.key(),
                               .shape = item.value().sizes().vec(),
                               .item_size = static_cast<std::int64_t>(item.value().element_size()),
                               .tie = -1},
                      .tensor = item.value()});
  }
  int tie = 0;
  for (const auto& [impl, mine] : paths) {
    if (mine.size() < 2) continue;
    for (const std::size_t i : mine) leaves[i].leaf.tie = tie;
    ++tie;
  }
  return leaves;
}

MatchReport match(const std::vector<Named>& leaves, const Mesh& mesh, const PathRules& rules) {
  std::vector<Leaf> plain;
  for (const Named& named : leaves) plain.push_back(named.leaf);
  return rules.match(mesh, plain);
}

void place_all(const std::vector<Named>& leaves, const Mesh& mesh, const MatchReport& report) {
  std::map<const void*, bool> done;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    at::Tensor tensor = leaves[i].tensor;
    if (std::exchange(done[tensor.unsafeGetTensorImpl()], true)) continue;
    const at::Tensor placed = device_put(tensor.detach(), {mesh, report.matches[i].spec});
    if (tensor.is_meta()) {
      convert(tensor, placed);  // whose device is another: set_data would refuse
    } else {
      tensor.set_data(placed);
    }
    account_for(tensor, Use::parameters);
  }
}

}  // namespace

MatchReport shard(torch::nn::Module& module, const Mesh& mesh, const PathRules& rules) {
  torch::NoGradGuard no_grad;
  const auto parameters = leaves_of(module.named_parameters());
  const auto buffers = leaves_of(module.named_buffers());
  MatchReport report = match(parameters, mesh, rules);
  const MatchReport more = match(buffers, mesh, rules.otherwise(Unmatched::replicate));
  place_all(parameters, mesh, report);
  place_all(buffers, mesh, more);
  report.matches.insert(report.matches.end(), more.matches.begin(), more.matches.end());
  return report;
}

MatchReport replicate(torch::nn::Module& module, const Mesh& mesh) {
  return shard(module, mesh, PathRules(std::vector<PathRule>{}).otherwise(Unmatched::replicate));
}

void device_get(torch::nn::Module& module) {
  torch::NoGradGuard no_grad;
  auto get = [](at::Tensor tensor) {
    if (!tensor.defined() || !is_sharded(tensor)) return;
    const at::Tensor whole = full(tensor.detach());
    if (whole.is_meta()) {
      convert(tensor, whole);
    } else {
      tensor.set_data(whole);
    }
  };
  for (auto& parameter : module.parameters()) get(parameter);
  for (auto& buffer : module.buffers()) get(buffer);
}

}  // namespace meshtorch
