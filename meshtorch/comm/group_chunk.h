// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <meshtorch/layout/shard.h>

namespace meshtorch {

// The nested chunk of a local dimension of `size` that rank `rank` of the group along `axes` gets.
inline Interval group_chunk(const Mesh& mesh, AxisList axes, std::int64_t size, std::int64_t rank) {
  std::int64_t below = mesh.shards(axes);
  Interval piece{0, size};
  for (int i = 0; i < axes.size(); ++i) {
    const std::int64_t count = mesh.axis_size(axes[i]);
    below /= count;
    piece = chunk(piece, rank / below % count, count);
  }
  return piece;
}

}  // namespace meshtorch
