// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/layout/divisible_dim.h>

namespace meshtorch {

int divisible_dim(const Mesh& mesh, const Shape& shape, const Layout& layout, int axis) {
  int best = -1;
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    const std::int64_t pieces = mesh.shards(layout.dims[dim]) * mesh.axis_size(axis);
    const bool divides = shape[dim] > 0 && shape[dim] % pieces == 0;
    if (divides && (best < 0 || shape[dim] > shape[static_cast<std::size_t>(best)]))
      best = static_cast<int>(dim);
  }
  return best;
}

}  // namespace meshtorch
