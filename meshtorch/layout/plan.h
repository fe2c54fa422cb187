// SPDX-License-Identifier: Apache-2.0
//
// From any layout to any other on one mesh: a short sequence of steps, each one collective or a
// free local change, with the fewest bytes moved and never more memory than the larger of source
// and target shard plus one chunk (after "Memory-efficient array redistribution through portable
// collective communication", arXiv 2112.01075). Pure: no tensors, only shapes.
//
//   P(tp) unreduced(dp) of {8, 6} floats to P(-, tp) on (dp=2, tp=2):
//
//   all_to_all(tp): P(tp) unreduced(dp) -> P(-, tp) unreduced(dp), 48 bytes
//   all_reduce(dp): P(-, tp) unreduced(dp) -> P(-, tp), 96 bytes
//
// Only axes whose place differs take part: an axis that is replicated on both sides, unreduced on
// both, or in the common major part of one dimension stays where it is, even where work spread over
// it would save bytes. Axes of size one never cause a collective.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <meshtorch/layout/layout.h>
#include <meshtorch/layout/shard.h>

namespace meshtorch {

enum class StepKind {
  // Free: no communication.
  slice,       // replicated over axes -> to_dim cut over them
  mask,        // replicated over axes -> unreduced: the value on group rank 0, zeros elsewhere
  pad,         // from_dim's minor axes -> unreduced: own piece, zeros around it
  relabel,     // only axes of size one change place: the local value stays as it is
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
  // The group, major to minor; the rank order is that of Mesh::group_rank. Of a permute: every
  // transfer stays within a group of these axes.
  AxisList axes;
  int from_dim = -1;  // where it applies
  int to_dim = -1;
  Layout before;
  Layout after;
  std::int64_t bytes = 0;  // received by the device that receives most
};

struct Plan {
  std::vector<Step> steps;
  std::int64_t bytes = 0;       // sum over steps
  std::int64_t peak_bytes = 0;  // the largest shard held between steps (source and target included)
};

// The fewest bytes; among those the fewest collectives, the fewest permutes (a permute is point to
// point), the fewest steps. Equal arguments give equal plans. Nothing is cached here. Throws Error
// where a layout is not of the shape's rank.
//
// Bytes per device for n devices and B bytes of the largest local tensor that is not yet (or no
// longer) cut over the group: all_gather and reduce_scatter (n-1)/n B, all_reduce 2 (n-1)/n B,
// all_to_all (n-1)/n of the local piece, permute what the busiest device receives. Where a
// dimension does not divide, all but all_reduce count the busiest device exactly: an all_gather of
// 5 elements over 2 brings 3 to the device that holds 2.
Plan plan_redistribution(const Mesh& mesh, const Shape& shape, std::int64_t item_size,
                         const Layout& from, const Layout& to);

// A piece that a permute moves: `box`, in global coordinates, lies in the shards of both positions.
struct Transfer {
  std::int64_t source;
  std::int64_t destination;
  Box box;
  friend bool operator==(const Transfer&, const Transfer&) = default;
};

// What each device lacks of its new shard, by destination, then source. No box is empty, none
// occurs twice; what the device already holds, intersect(old box, new box), is not listed. Among
// replicas the source is the one that differs from the destination along the fewest axes, so they
// share the load. Throws Error where the unreduced axes of the two layouts differ.
std::vector<Transfer> transfers(const Mesh& mesh, const Shape& shape, const Layout& from,
                                const Layout& to);

// One line a step, as above; no line where there is nothing to do.
std::string to_string(const Mesh& mesh, const Plan& plan);

}  // namespace meshtorch
