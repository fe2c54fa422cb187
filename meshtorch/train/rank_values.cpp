// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/train/rank_values.h>

#include <ATen/ATen.h>

#include <algorithm>

#include <meshtorch/base/error.h>
#include <meshtorch/layout/shard.h>
#include <meshtorch/tensor/redistribute.h>
#include <meshtorch/tensor/runtime.h>
#include <meshtorch/tensor/sharded.h>
#include <meshtorch/tensor/sharding.h>
#include <meshtorch/tensor/write.h>

namespace meshtorch {
namespace {

AxisList only(AxisList axes, AxisSet kept) {
  AxisList result;
  for (int i = 0; i < axes.size(); ++i) {
    if (kept.contains(axes[i])) result.push_back(axes[i]);
  }
  return result;
}

AxisSet automatic_set(const RankGrid& grid) {
  AxisSet axes;
  for (const int axis : grid.automatic) axes.insert(axis);
  return axes;
}

// A layout on the whole mesh as one on a rank's, and back.
Layout on_rank_mesh(const RankGrid& grid, const Layout& layout) {
  Layout result = Layout::replicated(static_cast<std::int64_t>(layout.dims.size()));
  for (std::size_t dim = 0; dim < layout.dims.size(); ++dim) {
    const AxisList axes = only(layout.dims[dim], automatic_set(grid));
    for (int i = 0; i < axes.size(); ++i) result.dims[dim].push_back(grid.automatic_index(axes[i]));
  }
  for (const int axis : layout.unreduced& automatic_set(grid))
    result.unreduced.insert(grid.automatic_index(axis));
  return result;
}

Layout on_whole_mesh(const RankGrid& grid, const Layout& layout) {
  Layout result = Layout::replicated(static_cast<std::int64_t>(layout.dims.size()));
  const auto at = [&](int axis) { return grid.automatic[static_cast<std::size_t>(axis)]; };
  for (std::size_t dim = 0; dim < layout.dims.size(); ++dim) {
    for (int i = 0; i < layout.dims[dim].size(); ++i)
      result.dims[dim].push_back(at(layout.dims[dim][i]));
  }
  for (const int axis : layout.unreduced) result.unreduced.insert(at(axis));
  return result;
}

Shape rank_shape(const RankGrid& grid, const Shape& shape, const Layout& layout,
                 std::int64_t position) {
  Shape result;
  for (std::size_t dim = 0; dim < shape.size(); ++dim)
    result.push_back(
        shard_interval(grid.mesh, shape[dim], only(layout.dims[dim], grid.manual), position)
            .size());
  return result;
}

bool seen_by_others(const at::Tensor& local, std::size_t holders) {
  return static_cast<std::size_t>(local.use_count()) > holders ||
         (local.has_storage() && local.storage().use_count() > 1) ||
         !local.is_non_overlapping_and_dense();
}

// The local with no history and no other owner.
at::Tensor owned(const at::Tensor& local, std::size_t holders) {
  if (local.is_meta() || !seen_by_others(local, holders)) return local.detach();
  return local.detach().clone(at::MemoryFormat::Contiguous);
}

[[noreturn]] void fail_shape(const RankGrid& grid, std::int64_t number, const std::string& where,
                             const Shape& got, const Shape& expected, const Layout& manual) {
  fail({.op = "local_map",
        .where = where,
        .what = text("rank (", grid.name_of(number), ") returned [", join(got), "], expected [",
                     join(expected), "] as its part by ", to_string(grid.mesh, manual)),
        .remedy = "return parts that put together are a tensor: equal ones, or ceil chunks"});
}

}  // namespace

Layout manual_layout(const RankGrid& grid, const PartitionSpec& spec, std::int64_t dims,
                     const std::string& where) {
  const Layout layout = resolve(grid.mesh, spec, dims, "local_map", where);
  for (const int axis : (layout.sharded() | layout.unreduced) & automatic_set(grid)) {
    fail({.op = "local_map",
          .where = where,
          .what = text("spec ", spec, " names axis ",
                       grid.mesh.axes()[static_cast<std::size_t>(axis)].name,
                       ", which is automatic here"),
          .remedy = text("name manual axes only: ", grid.manual_names())});
  }
  return layout;
}

Layout with_automatic(const RankGrid& grid, const Layout& manual, const Layout& layout) {
  Layout result = manual;
  for (std::size_t dim = 0; dim < layout.dims.size(); ++dim) {
    const AxisList axes = only(layout.dims[dim], automatic_set(grid));
    for (int i = 0; i < axes.size(); ++i) result.dims[dim].push_back(axes[i]);
  }
  result.unreduced = manual.unreduced | (layout.unreduced & automatic_set(grid));
  return result;
}

at::Tensor lay_out(const RankGrid& grid, const at::Tensor& x, const Layout& manual,
                   const std::string& where) {
  const ShardedView* view = sharded_view(x);
  if (view == nullptr) return device_put(x, {grid.mesh, spec_of(grid.mesh, manual)});
  if (!(view->mesh() == grid.mesh)) {
    fail({.op = "local_map",
          .where = where,
          .what = text("is on mesh ", view->mesh(), ", expected ", grid.mesh),
          .remedy = "device_put it onto the mesh of local_map"});
  }
  const Layout target = with_automatic(grid, manual, view->layout());
  return target == view->layout() ? x : reshard(x, spec_of(grid.mesh, target));
}

at::Tensor rank_tensor(const RankGrid& grid, std::size_t rank, const Shape& shape,
                       const Layout& layout, const Shards& locals) {
  const RankPlace& place = grid.ranks[rank];
  if (!place.mesh.defined()) return locals[place.devices.front()].detach();
  Shards own;
  for (const std::size_t d : place.devices) own.push_back(locals[d]);
  at::Tensor result = wrap(place.mesh, rank_shape(grid, shape, layout, place.position),
                           on_rank_mesh(grid, layout), std::move(own));
  sharded_view(result)->allocation()->placed = true;
  return result;
}

RankPart take_part(const RankGrid& grid, std::size_t rank, const at::Tensor& tensor,
                   const std::string& where, std::size_t holders) {
  const RankPlace& place = grid.ranks[rank];
  RankPart part{.shape = shape_of(tensor),
                .type = tensor.scalar_type(),
                .layout = Layout::replicated(tensor.dim())};
  at::AutoDispatchBelowADInplaceOrView below;
  if (const ShardedView* view = sharded_view(tensor)) {
    if (!place.mesh.defined() || !(view->mesh() == place.mesh)) {
      fail({.op = "local_map",
            .where = where,
            .what = text("rank (", place.name, ") returned a tensor that is ", describe(tensor),
                         ", from outside of local_map"),
            .remedy = "pass what it is made of as an argument"});
    }
    part.layout = on_whole_mesh(grid, view->layout());
    const bool shared = static_cast<std::size_t>(tensor.use_count()) > holders;
    for (const at::Tensor& local : view->locals())
      part.locals.push_back(owned(local, shared ? 0 : 1));
    return part;
  }
  part.locals.push_back(owned(tensor, holders));
  for (std::size_t d = 1; d < place.devices.size(); ++d)
    part.locals.push_back(part.locals.front().clone());
  return part;
}

at::Tensor assemble(const RankGrid& grid, std::vector<RankPart> parts, const RankForm& form) {
  const Layout layout = with_automatic(grid, form.manual, form.automatic);
  const auto& positions = Runtime::current().communicator().addressable(grid.mesh);
  Shards locals(grid.devices());
  for (std::size_t rank = 0; rank < parts.size(); ++rank) {
    const RankPlace& place = grid.ranks[rank];
    RankPart& part = parts[rank];
    if (!part.locals.empty() && part.layout != form.automatic)
      part.locals = redistribute(place.mesh, part.shape, on_rank_mesh(grid, part.layout),
                                 on_rank_mesh(grid, form.automatic), part.locals,
                                 {.op = "local_map", .origin = Origin::implied, .where = ""}, true);
    for (std::size_t d = 0; d < place.devices.size(); ++d) {
      const std::size_t device = place.devices[d];
      locals[device] =
          part.locals.empty()
              ? at::zeros(shard_shape(grid.mesh, form.shape, layout, positions[device]), form.zeros)
              : part.locals[d];
    }
  }
  return wrap(grid.mesh, form.shape, layout, std::move(locals));
}

void mark_written(const at::Tensor& tensor) { written(*sharded_view(tensor)); }

Shape whole_shape(const RankGrid& grid, const std::vector<Shape>& shapes, const Layout& manual,
                  const std::string& where) {
  Shape whole = shapes.front();
  for (std::size_t dim = 0; dim < whole.size(); ++dim) {
    whole[dim] = 0;
    // Those that differ from the first rank along the dim's axes only.
    for (const std::int64_t position : grid.mesh.group(0, manual.dims[dim])) {
      const std::int64_t number = grid.mesh.group_rank(position, grid.manual_order);
      whole[dim] += shapes[static_cast<std::size_t>(number)][dim];
    }
  }
  for (std::size_t number = 0; number < shapes.size(); ++number) {
    const auto n = static_cast<std::int64_t>(number);
    const Shape expected = rank_shape(grid, whole, manual, grid.position_of(n));
    if (shapes[number] != expected) fail_shape(grid, n, where, shapes[number], expected, manual);
  }
  return whole;
}

}  // namespace meshtorch
