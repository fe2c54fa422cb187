// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <torch/library.h>

namespace meshtorch {

// No kernel for the Meta key.
bool lacks_shape_function(const std::string& name, const std::string& overload);

// Shape functions that rules do not tell: results of several types, absent ones, sizes that depend on
// attributes, and composites of libtorch's that do not run on meta tensors.
void add_shapes_by_hand(torch::Library& library);
void add_shapes_by_name(torch::Library& library);
// Opaque ones: what the CPU kernel itself gives for zeros of these sizes. They allocate, unlike the others.
void add_shapes_by_running(torch::Library& library);

}  // namespace meshtorch
