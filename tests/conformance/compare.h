// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <ATen/core/Tensor.h>

#include "case.h"

namespace meshtorch::conformance {

// What tells `got` from `expected` (both plain): dtype, sizes, the largest difference beyond
// tolerance * (1 + |expected|). Empty where nothing does; NaN equals NaN; integers compare exactly.
std::string difference(const at::Tensor& got, const at::Tensor& expected, double tolerance);

// As the case wants them compared: absolute values, sorted values, or just the tensor.
at::Tensor comparable(const at::Tensor& x, Compare compare);

// Of values computed in this dtype: double 1e-9, float 1e-4, half 1e-2, bfloat16 5e-2.
double tolerance_of(at::ScalarType type);

}  // namespace meshtorch::conformance
