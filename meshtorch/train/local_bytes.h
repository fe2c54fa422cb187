// SPDX-License-Identifier: Apache-2.0
//
// Sizes by which collectives are put together: the same on every process, whatever each holds.
#pragma once

#include <cstdint>

#include <meshtorch/layout/shard.h>
#include <meshtorch/tensor/sharded.h>

namespace meshtorch {

// Of a sharded tensor, on the device that holds most of it.
inline std::int64_t local_bytes(const at::Tensor& tensor) {
  const ShardedView& view = *sharded_view(tensor);
  return max_shard_numel(view.mesh(), shape_of(tensor), view.layout()) *
         static_cast<std::int64_t>(tensor.element_size());
}

}  // namespace meshtorch
