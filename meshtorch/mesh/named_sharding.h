// SPDX-License-Identifier: Apache-2.0
//
// A NamedSharding is a mesh and a spec: all there is to say about where a tensor's elements are.
#pragma once

#include <iosfwd>
#include <string>

#include <meshtorch/mesh/mesh.h>
#include <meshtorch/mesh/partition_spec.h>

namespace meshtorch {

struct NamedSharding {
  Mesh mesh;
  PartitionSpec spec;

  // "P(dp, tp) on (dp=4, tp=2)"
  std::string to_string() const;
  friend bool operator==(const NamedSharding&, const NamedSharding&) = default;
};

std::ostream& operator<<(std::ostream& out, const NamedSharding& sharding);

}  // namespace meshtorch
