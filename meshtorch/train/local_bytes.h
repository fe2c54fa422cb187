// SPDX-License-Identifier: Apache-2.0
//
// Sizes by which collectives are put together: the same on every process, whatever each holds.
#pragma once

#include <cstdint>

#include <meshtorch/layout/shard.h>
#include <meshtorch/tensor/sharded.h>

namespace meshtorch {

// On the device that holds most.
inline std::int64_t local_bytes(const Mesh& mesh, const Shape& shape, const Layout& layout,
                                at::ScalarType type) {
  return max_shard_numel(mesh, shape, layout) * static_cast<std::int64_t>(c10::elementSize(type));
}

// Of a sharded tensor.
inline std::int64_t local_bytes(const at::Tensor& tensor) {
  const ShardedView& view = *sharded_view(tensor);
  return local_bytes(view.mesh(), shape_of(tensor), view.layout(), tensor.scalar_type());
}

}  // namespace meshtorch
