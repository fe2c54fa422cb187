// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>

namespace meshtorch {

// Floating point tensors in the dtype; others, and undefined ones, as they are.
inline at::Tensor cast_floating(const at::Tensor& x, at::ScalarType type) {
  return x.defined() && x.is_floating_point() ? x.to(type) : x;
}

}  // namespace meshtorch
