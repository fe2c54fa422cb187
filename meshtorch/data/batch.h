// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace meshtorch {

// A global batch on the host; dim 0 of both is the batch.
struct Batch {
  at::Tensor inputs;
  at::Tensor targets;
};

}  // namespace meshtorch
