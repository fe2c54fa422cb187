// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/base/error.h>
#include <meshtorch/layout/plan.h>

namespace meshtorch {

std::vector<Transfer> transfers(const Mesh& mesh, const Shape& shape, const Layout& from,
                                const Layout& to) {
  if (from.unreduced != to.unreduced) {
    fail({.op = "transfers",
          .where = text(to_string(mesh, from), " -> ", to_string(mesh, to)),
          .what = "a permute keeps the unreduced axes",
          .remedy = "reduce, mask or pad in a step of its own"});
  }
  AxisList cut;
  for (const int axis : from.sharded()) cut.push_back(axis);
  std::vector<Box> held;
  for (std::int64_t p = 0; p < mesh.size(); ++p) held.push_back(shard_box(mesh, shape, from, p));

  std::vector<Transfer> all;
  for (std::int64_t destination = 0; destination < mesh.size(); ++destination) {
    const Box wanted = shard_box(mesh, shape, to, destination);
    // Each shard of `from` once, from the replica that agrees with the destination on other axes.
    for (const std::int64_t source : mesh.group(destination, cut)) {
      Box box = intersect(held[source], wanted);
      if (source == destination || volume(box) == 0) continue;
      all.push_back({source, destination, std::move(box)});
    }
  }
  return all;
}

}  // namespace meshtorch
