// SPDX-License-Identifier: Apache-2.0
//
// The one order in which values are combined, shared by every backend.
#pragma once

#include <meshtorch/comm/communicator.h>
#include <meshtorch/layout/shard.h>

namespace meshtorch {

// Where the ranks [begin, end) of a group are split: the first half is the larger.
constexpr std::size_t tree_middle(std::size_t begin, std::size_t end) {
  return begin + (end - begin + 1) / 2;
}

at::Tensor combine(const at::Tensor& a, const at::Tensor& b, Reduction reduction);
// Into `out`, which may be `a`.
void combine_out(at::Tensor& out, const at::Tensor& a, const at::Tensor& b, Reduction reduction);

// The tree of communicator.h over parts[begin, end); a fresh tensor where there are two or more, else
// the part itself.
at::Tensor combine_tree(const Shards& parts, std::size_t begin, std::size_t end,
                        Reduction reduction);
// Of all parts; fresh and contiguous.
at::Tensor fresh_tree(const Shards& parts, Reduction reduction);

// A contiguous copy.
at::Tensor fresh(const at::Tensor& tensor);

at::Tensor narrow(const at::Tensor& tensor, std::int64_t dim, Interval piece);
// `box` of a tensor that holds `origin`.
at::Tensor narrow(at::Tensor tensor, const Box& box, const Box& origin);

// The inputs of one group, by rank.
Shards members(const Shards& shards, const std::vector<std::int64_t>& group);

}  // namespace meshtorch
