// SPDX-License-Identifier: Apache-2.0
//
// Where the operands of a call lie: all legal layouts of each, and the combinations that are run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <meshtorch/layout/layout.h>

#include "instance.h"

namespace meshtorch::conformance {

struct Place {
  bool plain = false;  // a plain tensor; absent operands are plain, too
  Layout layout;
  friend bool operator==(const Place&, const Place&) = default;
};

using Placing = std::vector<Place>;  // one per operand

// Every axis nowhere, on one of the dims (in either order where two meet) or, for floating operands,
// unreduced.
std::vector<Layout> legal_layouts(const Mesh& mesh, std::int64_t rank, bool unreduced);

// All replicated; each operand alone in each of its layouts (two-dimensional meshes: both axes on one
// dim); one operand sharded among plain ones; `always`; then all other combinations, or a sample of
// them that `seed` determines, up to `limit` placings in all.
std::vector<Placing> placings(const Tensors& operands, const Mesh& mesh,
                              const std::vector<Placing>& always, std::size_t limit,
                              std::uint64_t seed);

// A sharded tensor. Along unreduced axes the value is the sum of random summands, exactly for doubles
// of Instance::values.
at::Tensor put(const at::Tensor& dense, const Mesh& mesh, const Layout& layout, std::uint64_t seed);

// "self P(dp), other plain"
std::string describe(const Instance& instance, const Mesh& mesh, const Placing& placing);

}  // namespace meshtorch::conformance
