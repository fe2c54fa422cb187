// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/train/rank_replicas.h>

#include <ATen/ATen.h>

#include <meshtorch/base/error.h>
#include <meshtorch/comm/distributed/digest.h>
#include <meshtorch/comm/meta.h>
#include <meshtorch/tensor/redistribute.h>

namespace meshtorch {

AxisList shared_axes(const RankGrid& grid, const Layout& manual) {
  AxisList shared;
  for (const int axis : grid.manual - manual.sharded() - manual.unreduced) {
    if (grid.mesh.axis_size(axis) > 1) shared.push_back(axis);
  }
  return shared;
}

void check_equal(const RankGrid& grid, const Shards& locals, const Layout& manual,
                 const std::string& where) {
  const AxisList axes = shared_axes(grid, manual);
  if (axes.empty() || is_meta(locals)) return;
  Shards sums;
  for (const at::Tensor& local : locals)
    sums.push_back(at::full({1}, static_cast<std::int64_t>(checksum(local)), at::kLong));
  Request request = Request::all_gather(grid.mesh, axes, 0);
  request.even = true;
  const Weight weight{.bytes = (grid.mesh.shards(axes) - 1) * 8};
  const Cause cause{.op = "local_map.check_equal", .where = where};
  for (const at::Tensor& all : run_collective(std::move(request), sums, weight, cause)) {
    if (at::equal(all, all.select(0, 0).expand_as(all))) continue;
    fail({.op = "local_map",
          .where = where,
          .what = text("is ", to_string(grid.mesh, manual), ", but differs between ranks along ",
                       axis_names(grid.mesh, axes)),
          .remedy = "reduce it in fn (psum, pmean), or name the axes in the spec"});
  }
}

void take_mean(const RankGrid& grid, const Shards& locals, const Layout& manual) {
  at::AutoDispatchBelowADInplaceOrView below;
  const AxisList axes = shared_axes(grid, manual);
  const at::ScalarType type = locals.front().scalar_type();
  const bool real = at::isFloatingType(type) || at::isComplexType(type);
  const std::int64_t n = grid.mesh.shards(axes);
  const auto given = static_cast<std::int64_t>(locals.front().nbytes());
  const Shards joined = run_collective(
      Request::all_reduce(grid.mesh, axes, real ? Reduction::sum : Reduction::max), locals,
      {.bytes = (2 * (n - 1) * given + n - 1) / n}, {.op = "local_map.mean", .where = ""});
  if (is_meta(joined)) return;
  for (std::size_t d = 0; d < joined.size(); ++d) locals[d].copy_(real ? joined[d] / n : joined[d]);
}

}  // namespace meshtorch
