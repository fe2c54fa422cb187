// SPDX-License-Identifier: Apache-2.0
//
// What communicator.h promises, computed once more by other means: from the inputs of all positions,
// by recursion over lists of them and libtorch's own ops.
#pragma once

#include <utility>
#include <vector>

#include <meshtorch/comm/communicator.h>

namespace meshtorch::suite {

// A collective with the inputs of every position of its mesh, which every process can build.
struct Case {
  Request request;
  Shards inputs;
};

// The positions that differ from `position` only along `axes`, by rank.
std::vector<std::int64_t> group_of(const Mesh& mesh, AxisList axes, std::int64_t position);

// [begin, end) of `size` elements for one rank of the group: ceil chunks, axis by axis.
std::pair<std::int64_t, std::int64_t> nested_chunk(const Mesh& mesh, AxisList axes,
                                                   std::int64_t size, std::int64_t position);

// What a position holds of a tensor: a view.
at::Tensor cut(const Mesh& mesh, const at::Tensor& whole, const Layout& layout,
               std::int64_t position);

// The result of every position.
Shards expected(const Case& test);

}  // namespace meshtorch::suite
