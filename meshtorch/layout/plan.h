// SPDX-License-Identifier: Apache-2.0
//
// From any layout to any other on one mesh: a short sequence of steps, each one collective or a free
// local change, with the fewest bytes moved and never more memory than the larger of source and
// target shard plus one chunk (after "Memory-efficient array redistribution through portable
// collective communication", arXiv 2112.01075). Pure: no tensors, only shapes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <meshtorch/layout/layout.h>

namespace meshtorch {

enum class StepKind {
  // Free: no communication.
  slice,       // replicated over axes -> to_dim cut over them
  mask,        // replicated over axes -> unreduced: the value stays on group rank 0, zeros elsewhere
  pad,         // from_dim cut over axes -> unreduced: own piece, zeros around it
  // Collectives over the groups of `axes`.
  all_gather,      // from_dim's minor axes -> replicated
  all_reduce,      // unreduced -> replicated
  reduce_scatter,  // unreduced -> to_dim cut over them (as its new minor axes)
  all_to_all,      // from_dim's minor axes -> to_dim's new minor axes
  permute,         // any sharded layout -> any sharded layout: each device receives what it lacks
};

std::string_view name(StepKind kind);
bool is_collective(StepKind kind);

struct Step {
  StepKind kind;
  AxisList axes;      // the group, major to minor; the rank order is that of Mesh::group_rank
  int from_dim = -1;  // where it applies
  int to_dim = -1;
  Layout before;
  Layout after;
  std::int64_t bytes = 0;  // sent by the device that sends most
};

struct Plan {
  std::vector<Step> steps;
  std::int64_t bytes = 0;       // sum over steps
  std::int64_t peak_bytes = 0;  // the largest shard held between steps (source and target included)
};

// Bytes per device for n devices and B bytes of the largest local tensor that is not yet (or no
// longer) cut over the group: all_gather and reduce_scatter (n-1)/n B, all_reduce 2 (n-1)/n B,
// all_to_all (n-1)/n of the local piece, permute what the busiest device receives.
Plan plan_redistribution(const Mesh& mesh, const Shape& shape, std::int64_t item_size,
                         const Layout& from, const Layout& to);

std::string to_string(const Mesh& mesh, const Plan& plan);  // one line a step

}  // namespace meshtorch
