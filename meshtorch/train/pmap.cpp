// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/train/pmap.h>

#include <torch/torch.h>

#include <meshtorch/base/error.h>
#include <meshtorch/tensor/sharded.h>
#include <meshtorch/tensor/sharding.h>

namespace meshtorch {
namespace {

// The axis on one dim.
PartitionSpec on_dim(const std::string& axis, std::int64_t dim) {
  std::vector<DimSpec> dims(static_cast<std::size_t>(dim) + 1);
  dims.back() = {axis};
  return PartitionSpec::from(std::move(dims));
}

void map_over(RankLeaf& leaf, std::int64_t dim, const std::string& axis, std::int64_t size) {
  const std::int64_t dims = leaf.tensor.dim(), at = dim < 0 ? dim + dims : dim;
  if (at < 0 || at >= dims || leaf.tensor.size(at) != size) {
    fail({.op = "pmap",
          .where = leaf.path.empty() ? "argument" : leaf.path,
          .what = text("dim ", dim, " of shape [", join(shape_of(leaf.tensor)), "] is not ", size,
                       ", the size of axis ", axis),
          .remedy = "give one slice for each device, or map over another dim"});
  }
  leaf.spec = on_dim(axis, at);
}

bool is_split(const at::Tensor& tensor, const std::string& axis) {
  if (!is_sharded(tensor)) return false;
  const auto dims = sharding_of(tensor).spec.dims();
  return !dims.empty() && dims[0] == DimSpec{axis};
}

void by_kind(RankLeaf& leaf, Kind kind, StateAxis how, const std::string& axis) {
  if (how == StateAxis::mean) leaf.writes = RankWrites::mean;
  if (how != StateAxis::split) return;
  if (!is_split(leaf.tensor, axis)) {
    fail({.op = "pmap",
          .where = leaf.path,
          .what = text("is a ", name(kind), " that all devices share, its state axis is split"),
          .remedy = "call split_state on the module before"});
  }
  leaf.spec = on_dim(axis, 0);
  leaf.row = true;
  leaf.writes = RankWrites::keep;
}

void apply_axes(std::vector<RankLeaf>& leaves, const TreeSlots& tree, const StateAxes& axes,
                const std::string& axis) {
  std::size_t leaf = 0;
  for (std::size_t slot = 0; slot < tree.slots.size(); ++slot) {
    if (!tree.slots[slot].tensor.defined()) continue;
    RankLeaf& mine = leaves[leaf++];
    mine.spec = P();
    for (const TreeModule& held : tree.modules) {
      if (slot < held.first || slot >= held.first + held.count || !mine.buffer) continue;
      const std::string path =
          held.path.empty() ? mine.path : mine.path.substr(held.path.size() + 1);
      const Kind kind = kind_of(*held.module, path);
      by_kind(mine, kind, axes.of(kind), axis);
      break;
    }
  }
}

bool has(const torch::nn::Module& module, const std::string& path, Kind kind) {
  return kind_of(module, path) == kind;
}

void check_buffers(const char* op, Kind kind) {
  if (kind == Kind::buffer || kind == Kind::batch_statistic) return;
  fail({.op = op,
        .where = std::string(name(kind)),
        .what = "is not a kind of buffer",
        .remedy = "name Kind::batch_statistic or Kind::buffer"});
}

at::Tensor mean_of(const at::Tensor& rows) {
  return rows.is_floating_point() || rows.is_complex() ? rows.mean(0) : std::get<0>(rows.max(0));
}

}  // namespace

StateAxes::StateAxes(std::initializer_list<std::pair<Kind, StateAxis>> axes) {
  for (const auto& [kind, axis] : axes) {
    const bool twice = !axes_.emplace(kind, axis).second;
    const bool possible = axis == StateAxis::broadcast || kind == Kind::batch_statistic ||
                          (axis == StateAxis::split && kind != Kind::parameter);
    if (!twice && possible) continue;
    fail({.op = "StateAxes",
          .where = std::string(name(kind)),
          .what = twice ? "is named twice" : "cannot lie so",
          .remedy = "parameters are broadcast; random state and buffers broadcast or split; batch "
                    "statistics broadcast, split or mean"});
  }
}

StateAxis StateAxes::of(Kind kind) const {
  const auto found = axes_.find(kind);
  if (found != axes_.end()) return found->second;
  return kind == Kind::random_state ? StateAxis::split : StateAxis::broadcast;
}

std::vector<std::optional<std::int64_t>> PmapOut::of(std::size_t leaves) const {
  if (axes_.size() == leaves) return axes_;
  if (axes_.size() == 1) return {leaves, axes_.front()};
  fail({.op = "pmap",
        .where = "out_axes",
        .what = text("has ", axes_.size(), " entries, fn returned ", leaves, " tensors"),
        .remedy = "give one for all of them, or one for each"});
}

void split_state(torch::nn::Module& module, Kind kind, const Mesh& mesh, const std::string& axis) {
  check_buffers("split_state", kind);
  torch::NoGradGuard no_grad;
  const std::int64_t n = mesh.axis_size(axis);
  for (const auto& item : module.named_buffers()) {
    const at::Tensor& buffer = item.value();
    if (!has(module, item.key(), kind) || is_split(buffer, axis)) continue;
    const at::Tensor rows = full(buffer).unsqueeze(0).repeat_interleave(n, 0);
    tree_detail::replace_value(buffer, device_put(rows, {mesh, on_dim(axis, 0)}));
  }
}

void merge_state(torch::nn::Module& module, Kind kind) {
  check_buffers("merge_state", kind);
  torch::NoGradGuard no_grad;
  for (const auto& item : module.named_buffers()) {
    const at::Tensor& buffer = item.value();
    if (!has(module, item.key(), kind) || !is_sharded(buffer)) continue;
    const NamedSharding sharding = sharding_of(buffer);
    if (sharding.spec.dims().empty()) continue;
    tree_detail::replace_value(buffer, replicate(mean_of(full(buffer)), sharding.mesh));
  }
}

namespace detail {

RankSpecs pmap_argument(const Mesh& mesh, const std::string& axis, const PmapAxis& in) {
  const std::int64_t size = mesh.axis_size(axis);
  return RankSpecs(RankSpecs::Rule([=](std::vector<RankLeaf>& leaves, const TreeSlots& tree) {
    if (const auto* axes = std::get_if<StateAxes>(&in))
      return apply_axes(leaves, tree, *axes, axis);
    for (RankLeaf& leaf : leaves) {
      if (const auto* dim = std::get_if<std::int64_t>(&in)) {
        map_over(leaf, *dim, axis, size);
      } else {
        leaf.spec = P();
      }
    }
  }));
}

RankSpecs pmap_result(const std::string& axis, const PmapOut& out) {
  return RankSpecs(RankSpecs::Rule([=](std::vector<RankLeaf>& leaves, const TreeSlots&) {
    const auto axes = out.of(leaves.size());
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      const std::int64_t dims = leaves[i].tensor.dim();
      leaves[i].spec = axes[i] ? on_dim(axis, *axes[i] < 0 ? *axes[i] + dims : *axes[i]) : P();
    }
  }));
}

LocalMapOptions pmap_options(const std::string& axis, const std::vector<PmapAxis>& in) {
  LocalMapOptions options{.manual_axes = {axis}};
  for (const PmapAxis& one : in) {
    const auto* axes = std::get_if<StateAxes>(&one);
    if (axes != nullptr && axes->of(Kind::random_state) == StateAxis::broadcast)
      options.random = RankRandom::same;
  }
  return options;
}

std::vector<at::Tensor> add_dims(const std::vector<at::Tensor>& leaves, const PmapOut& out) {
  const auto axes = out.of(leaves.size());
  std::vector<at::Tensor> results;
  for (std::size_t i = 0; i < leaves.size(); ++i)
    results.push_back(axes[i] ? leaves[i].unsqueeze(*axes[i]) : leaves[i]);
  return results;
}

}  // namespace detail
}  // namespace meshtorch
