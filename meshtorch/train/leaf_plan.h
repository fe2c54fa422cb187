// SPDX-License-Identifier: Apache-2.0
//
// Sizes and layouts of a ZeRO leaf without its values, and the collectives that redistribute such.
// Internal to explain.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <c10/core/ScalarType.h>

#include <meshtorch/layout/layout.h>
#include <meshtorch/train/explain.h>
#include <meshtorch/train/zero_leaf.h>

namespace meshtorch {

// One tensor's way from a layout to another.
struct LeafRoute {
  Shape shape;
  Layout from, to;
  at::ScalarType type;
  bool whole = false;  // as LeafPlan::whole
};

// A leaf's layouts, and its dtype in each.
struct LeafPlan {
  Shape shape;
  Layout use, gradient, state, stored;
  at::ScalarType compute, accumulate, wire, master;
  bool frozen, split, shares;
  bool whole = false;  // the axis does not cut it, although the stage would

  LeafRoute reduction() const { return {shape, gradient, state, wire, whole}; }
  LeafRoute update() const { return {shape, state, stored, compute, whole}; }
  LeafRoute gather() const { return {shape, stored, use, compute, whole}; }
};

// Gradients come out unreduced over `batch_axes`, where those do not shard the parameter.
LeafPlan plan_of(const ZeroLeaf& leaf, const ZeroOptions& options, AxisSet batch_axes);

// The collectives of a Flight (tensor/coalesce.h) on these routes, in its order.
std::vector<PlannedCollective> flight(const Mesh& mesh, const std::vector<LeafRoute>& routes,
                                      const std::string& meanwhile = "");

// Those that sum a number over these axes.
std::vector<PlannedCollective> scalar_sum(const Mesh& mesh, AxisSet axes, at::ScalarType type);

}  // namespace meshtorch
