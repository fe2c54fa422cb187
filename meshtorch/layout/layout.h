// SPDX-License-Identifier: Apache-2.0
//
// A layout is a PartitionSpec resolved against a mesh and a rank: axis indices in place of names,
// one entry for every dimension. It is what the engine computes with.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <meshtorch/mesh/named_sharding.h>

namespace meshtorch {

using Shape = std::vector<std::int64_t>;

struct Layout {
  std::vector<AxisList> dims;  // one per tensor dimension
  AxisSet unreduced;           // each device holds one summand along these axes

  // The layout of a tensor of `rank` dimensions that every device holds whole.
  static Layout replicated(std::int64_t rank) {
    return {std::vector<AxisList>(static_cast<std::size_t>(rank)), {}};
  }

  AxisSet sharded() const;           // the axes that shard some dimension
  int dim_of(int axis) const;        // the dimension that the axis shards, or -1
  bool is_replicated() const;        // nothing sharded, nothing unreduced
  friend bool operator==(const Layout&, const Layout&) = default;
};

// Resolves a spec for a tensor of this rank. Throws Error with `op` and `where` (a leaf's path, an
// operand): unknown axis, more dims than the tensor has, no mesh. (No axis occurs twice in a spec.)
Layout resolve(const Mesh& mesh, const PartitionSpec& spec, std::int64_t rank,
               const std::string& op = "PartitionSpec", const std::string& where = "");

// The spec that resolves to this layout.
PartitionSpec spec_of(const Mesh& mesh, const Layout& layout);

std::string to_string(const Mesh& mesh, const Layout& layout);  // spec_of(...).to_string()

}  // namespace meshtorch
