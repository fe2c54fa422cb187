// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/train/rank_arguments.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <map>

#include <meshtorch/base/error.h>
#include <meshtorch/tensor/sharded.h>
#include <meshtorch/train/rank_values.h>

namespace meshtorch {
namespace {

[[noreturn]] void fail_tied(const RankLeaf& a, const RankLeaf& b) {
  fail({.op = "local_map",
        .where = b.path,
        .what = text("is one tensor with ", a.path, ", but has spec ", b.spec, ", not ", a.spec),
        .remedy = "give both the same"});
}

PartitionSpec on_ranks(const RankGrid& grid, const PartitionSpec& spec) {
  const auto manual = [&](const std::string& name) {
    const int axis = grid.mesh.find_axis(name);
    return axis >= 0 && grid.manual.contains(axis);
  };
  std::vector<DimSpec> dims = spec.dims();
  for (DimSpec& names : dims) std::erase_if(names, manual);
  std::vector<std::string> unreduced = spec.unreduced_axes();
  std::erase_if(unreduced, manual);
  return PartitionSpec::from(std::move(dims), std::move(unreduced));
}

// Along the manual axes activations lie as fn has them.
std::shared_ptr<const Constraint> constraint_of(const RankGrid& grid, const at::Tensor& tensor) {
  if (grid.automatic.empty() || !is_constrained(tensor)) return nullptr;
  const Constraint& whole = *sharded_view(tensor)->allocation()->constraint;
  std::vector<Constraint::Use> uses = whole.uses;
  for (Constraint::Use& use : uses) {
    if (use.input) use.input = on_ranks(grid, *use.input);
    if (use.output) use.output = on_ranks(grid, *use.output);
  }
  return std::make_shared<const Constraint>(whole.path, std::move(uses));
}

}  // namespace

std::vector<LaidOut> lay_out_all(const RankGrid& grid, const std::vector<RankLeaf>& arguments) {
  std::vector<LaidOut> all;
  for (const RankLeaf& leaf : arguments) {
    LaidOut laid;
    laid.manual = manual_layout(grid, leaf.spec, leaf.tensor.dim(), leaf.path);
    laid.tensor = lay_out(grid, leaf.tensor, laid.manual, leaf.path);
    const ShardedView& view = *sharded_view(laid.tensor);
    laid.shape = shape_of(laid.tensor);
    laid.layout = view.layout();
    laid.locals = view.locals();
    laid.constraint = constraint_of(grid, leaf.tensor);
    laid.needs_gradient = c10::GradMode::is_enabled() && laid.tensor.requires_grad();
    all.push_back(std::move(laid));
  }
  return all;
}

std::vector<std::size_t> firsts_of(const std::vector<RankLeaf>& leaves) {
  std::map<const void*, std::vector<std::size_t>> places;
  std::vector<std::size_t> firsts;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    auto& known = places[leaves[i].tensor.unsafeGetTensorImpl()];
    std::size_t first = i;
    for (const std::size_t other : known) {
      if (leaves[other].of_module != leaves[i].of_module) continue;
      if (leaves[other].spec == leaves[i].spec) first = std::min(first, other);
      if (leaves[other].spec != leaves[i].spec && leaves[i].of_module)
        fail_tied(leaves[other], leaves[i]);
    }
    known.push_back(i);
    firsts.push_back(first);
  }
  return firsts;
}

}  // namespace meshtorch
