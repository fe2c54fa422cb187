// SPDX-License-Identifier: Apache-2.0
//
// The edges of the planner's search: which single steps lead on from a layout, and what each costs.
// Internal to layout/.
#pragma once

#include <cstdint>
#include <vector>

#include <meshtorch/layout/plan.h>

namespace meshtorch {

// One question to the planner. Only `moving` axes may change place; none of them has size one.
struct Route {
  const Mesh& mesh;
  const Shape& shape;
  std::int64_t item_size;
  const Layout& to;
  AxisSet moving;
};

// The steps from `at` that can be part of a shortest plan, in a fixed order. An axis is only ever
// taken to its home, the place it has in `to`, or made replicated on the way. What that cannot do
// within memory or at the fewest bytes (axes in another order, both dims occupied) one permute
// does: it receives exactly what is missing, so no plan moves less.
std::vector<Step> moves(const Route& route, const Layout& at);

// The plan of three kinds of steps that exists between any two layouts: all_reduce, permute, then
// mask and pad. Not the cheapest; never above the memory of `at` and `to`.
std::vector<Step> direct_moves(const Route& route, Layout at);

}  // namespace meshtorch
