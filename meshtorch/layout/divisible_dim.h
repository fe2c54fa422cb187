// SPDX-License-Identifier: Apache-2.0
//
// Which dimension takes one more axis: the choice that ZeRO and FsdpRule share.
#pragma once

#include <meshtorch/layout/layout.h>

namespace meshtorch {

// The largest dimension whose size `axis` divides after what shards it already; the first of equals; -1
// where none does. Dimensions of size zero take no axis.
int divisible_dim(const Mesh& mesh, const Shape& shape, const Layout& layout, int axis);

}  // namespace meshtorch
