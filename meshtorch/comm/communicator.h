// SPDX-License-Identifier: Apache-2.0
//
// The only place that knows how data moves between devices. A call takes one plain tensor for each
// addressable device of the mesh, in the order of `addressable(mesh)`, and returns as many. A group
// is formed by the positions that differ only along `axes`; the rank in it is row-major in the order
// the axes are listed (Mesh::group_rank).
//
// Post-conditions, for a group of n with inputs x_0 .. x_{n-1} (by rank):
//   all_reduce      every result is x_0 (+) ... (+) x_{n-1}, combined by one fixed tree:
//                   split the ranks in halves (the first the larger), combine each, then the two.
//                   The same bits on every device and on every backend.
//   all_gather      every result is concat(x_0 .. x_{n-1}, dim); sizes along dim may differ
//   reduce_scatter  rank r gets its nested chunk (layout/shard.h) along dim of the tree sum
//   all_to_all      rank r gets concat over s of (rank r's nested chunk along split_dim of x_s, concat_dim)
//   permute         position p gets, of a global tensor cut as `from`, the box that `to` gives it
//
// No result shares memory with an input or with another result.
#pragma once

#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include <meshtorch/layout/layout.h>

namespace meshtorch {

using Shards = std::vector<at::Tensor>;

enum class Reduction { sum, max, min };

class Communicator {
 public:
  virtual ~Communicator() = default;

  // Devices that exist, over all processes.
  virtual std::int64_t devices() const = 0;
  // The positions of the mesh that this process holds, ascending.
  virtual const std::vector<std::int64_t>& addressable(const Mesh& mesh) const = 0;

  virtual Shards all_reduce(const Mesh& mesh, AxisList axes, const Shards& shards,
                            Reduction reduction = Reduction::sum) = 0;
  virtual Shards all_gather(const Mesh& mesh, AxisList axes, const Shards& shards,
                            std::int64_t dim) = 0;
  virtual Shards reduce_scatter(const Mesh& mesh, AxisList axes, const Shards& shards,
                                std::int64_t dim) = 0;
  virtual Shards all_to_all(const Mesh& mesh, AxisList axes, const Shards& shards,
                            std::int64_t split_dim, std::int64_t concat_dim) = 0;
  virtual Shards permute(const Mesh& mesh, const Shape& shape, const Layout& from, const Layout& to,
                         const Shards& shards) = 0;
};

// All devices are virtual ones of this process: collectives are memory operations.
std::unique_ptr<Communicator> make_local_communicator(std::int64_t devices);

}  // namespace meshtorch
