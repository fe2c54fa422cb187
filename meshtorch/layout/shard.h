// SPDX-License-Identifier: Apache-2.0
//
// Which elements a device holds. A dimension of n elements over one axis of k devices is cut in
// chunks of c = ceil(n / k): device i holds [min(i*c, n), min((i+1)*c, n)), so the last ones may be
// short or empty. Several axes on one dimension apply this in turn, major to minor: 5 elements over
// (2, 2) are [0,3) [3,5) and then [0,2) [2,3) [3,4) [4,5). Every axis can therefore be gathered or
// cut alone, whatever the sizes.
#pragma once

#include <cstdint>
#include <vector>

#include <meshtorch/layout/layout.h>

namespace meshtorch {

// Half-open [begin, end).
struct Interval {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const { return end - begin; }
  friend bool operator==(const Interval&, const Interval&) = default;
};

// One interval per dimension.
using Box = std::vector<Interval>;

// Chunk `i` of `k` of the interval.
Interval chunk(Interval whole, std::int64_t i, std::int64_t k);

// What the device at `position` holds of a dimension of `size` elements cut over `axes`.
Interval shard_interval(const Mesh& mesh, std::int64_t size, AxisList axes, std::int64_t position);

// What it holds of a tensor of this global shape.
Box shard_box(const Mesh& mesh, const Shape& shape, const Layout& layout, std::int64_t position);
Shape shard_shape(const Mesh& mesh, const Shape& shape, const Layout& layout,
                  std::int64_t position);

// What two boxes share; where they do not meet, an empty box.
Box intersect(const Box& a, const Box& b);
Shape shape_of(const Box& box);

std::int64_t numel(const Shape& shape);
std::int64_t volume(const Box& box);

// Elements of the largest shard (that of position 0).
std::int64_t max_shard_numel(const Mesh& mesh, const Shape& shape, const Layout& layout);

}  // namespace meshtorch
