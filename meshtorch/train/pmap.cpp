// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/train/pmap.h>

#include <torch/torch.h>

#include <map>

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
  if (leaf.of_module) {
    fail({.op = "pmap",
          .where = leaf.path,
          .what = "is a module's, whose dims are not mapped",
          .remedy = "use StateAxes, or a struct of tensors"});
  }
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

// As split_state leaves it: a row for each device. (A rule may shard over the axis what is no such rows.)
bool is_split(const at::Tensor& tensor, const std::string& axis) {
  if (!is_sharded(tensor) || tensor.dim() == 0) return false;
  const NamedSharding sharding = sharding_of(tensor);
  const auto dims = sharding.spec.dims();
  return !dims.empty() && dims[0] == DimSpec{axis} &&
         tensor.size(0) == sharding.mesh.axis_size(axis);
}

void by_kind(RankLeaf& leaf, Kind kind, StateAxis how, const std::string& axis) {
  if (how == StateAxis::mean) leaf.writes = RankWrites::mean;
  if (how != StateAxis::split) return;
  if (!is_split(leaf.tensor, axis)) {
    fail({.op = "pmap",
          .where = leaf.path,
          .what = text("is a ", name(kind), " without a row for each device along ", axis,
                       ", its state axis is split"),
          .remedy = "call split_state on the module before"});
  }
  leaf.spec = on_dim(axis, 0);
  leaf.row = true;
  leaf.writes = RankWrites::keep;
}

using Kinds = std::map<const void*, Kind>;  // by tensor

Kinds kinds_of(const TreeModule& held) {
  Kinds kinds;
  if (held.module == nullptr) return kinds;
  for (const StateEntry& entry : State(*held.module))
    kinds.emplace(entry.tensor.unsafeGetTensorImpl(), entry.kind);
  return kinds;
}

void apply_axes(std::vector<RankLeaf>& leaves, const TreeSlots& tree, const StateAxes& axes,
                const std::string& axis) {
  Kinds kinds;
  for (const TreeModule& held : tree.modules) kinds.merge(kinds_of(held));
  for (RankLeaf& leaf : leaves) {
    leaf.spec = P();
    if (!leaf.buffer) continue;
    const auto kind = kinds.find(leaf.tensor.unsafeGetTensorImpl());
    if (kind == kinds.end()) {
      fail({.op = "pmap",
            .where = leaf.path,
            .what = "is of a module that the tree holds by value, so that its kind is not known",
            .remedy = "hold the module by its ModuleHolder or a shared_ptr"});
    }
    by_kind(leaf, kind->second, axes.of(kind->second), axis);
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
  if (axes_.size() == 1) return std::vector<std::optional<std::int64_t>>(leaves, axes_.front());
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

void merge_state(torch::nn::Module& module, Kind kind, const std::string& axis) {
  check_buffers("merge_state", kind);
  torch::NoGradGuard no_grad;
  for (const auto& item : module.named_buffers()) {
    const at::Tensor& buffer = item.value();
    if (!has(module, item.key(), kind) || !is_split(buffer, axis)) continue;
    const Mesh mesh = sharding_of(buffer).mesh;
    tree_detail::replace_value(buffer, replicate(mean_of(full(buffer)), mesh));
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
  std::optional<StateAxis> random;
  for (const PmapAxis& one : in) {
    const auto* axes = std::get_if<StateAxes>(&one);
    if (axes == nullptr || !axes->names(Kind::random_state)) continue;
    const StateAxis mine = axes->of(Kind::random_state);
    if (random.value_or(mine) != mine) {
      fail({.op = "pmap",
            .where = "in_axes",
            .what = "random state is split in one argument's StateAxes, broadcast in another's",
            .remedy = "name it in one: a device has one stream of random numbers"});
    }
    random = mine;
  }
  LocalMapOptions options{.manual_axes = {axis}};
  if (random == StateAxis::broadcast) options.random = RankRandom::same;
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
