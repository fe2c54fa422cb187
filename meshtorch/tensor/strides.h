// SPDX-License-Identifier: Apache-2.0
//
// The strides that a wrapper shows are those of its locals, spaced out. A shard with one element along a
// dim says nothing of that dim's stride, so two processes could show different ones, and libtorch, which
// chooses between formulas by strides (the backward of mm), would run different programs. Where shards are
// so uneven, processes show dense row-major strides, and views the strides of the same view of those.
#pragma once

#include <meshtorch/tensor/sharded.h>

namespace meshtorch {

// Whether there are several processes, and some of the shards say less about strides than the largest.
bool strides_are_untold(const Mesh& mesh, const Shape& shape, const DimAxes& dims);

}  // namespace meshtorch
