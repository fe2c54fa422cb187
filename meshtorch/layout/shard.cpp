// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/layout/shard.h>

#include <algorithm>

namespace meshtorch {

Interval chunk(Interval whole, std::int64_t i, std::int64_t k) {
  const std::int64_t size = (whole.size() + k - 1) / k;
  return {std::min(whole.begin + i * size, whole.end),
          std::min(whole.begin + (i + 1) * size, whole.end)};
}

Interval shard_interval(const Mesh& mesh, std::int64_t size, AxisList axes, std::int64_t position) {
  Interval held{0, size};
  for (int i = 0; i < axes.size(); ++i) {
    held = chunk(held, mesh.coordinate(position, axes[i]), mesh.axis_size(axes[i]));
  }
  return held;
}

Box shard_box(const Mesh& mesh, const Shape& shape, const Layout& layout, std::int64_t position) {
  Box box(shape.size());
  for (std::size_t d = 0; d < shape.size(); ++d) {
    box[d] = shard_interval(mesh, shape[d], layout.dims[d], position);
  }
  return box;
}

Shape shard_shape(const Mesh& mesh, const Shape& shape, const Layout& layout,
                  std::int64_t position) {
  return shape_of(shard_box(mesh, shape, layout, position));
}

Box intersect(const Box& a, const Box& b) {
  Box both(a.size());
  for (std::size_t d = 0; d < a.size(); ++d) {
    const std::int64_t begin = std::max(a[d].begin, b[d].begin);
    both[d] = {begin, std::max(begin, std::min(a[d].end, b[d].end))};
  }
  return both;
}

Shape shape_of(const Box& box) {
  Shape shape(box.size());
  std::ranges::transform(box, shape.begin(), &Interval::size);
  return shape;
}

std::int64_t numel(const Shape& shape) {
  std::int64_t product = 1;
  for (const std::int64_t size : shape) product *= size;
  return product;
}

std::int64_t volume(const Box& box) {
  std::int64_t product = 1;
  for (const Interval& interval : box) product *= interval.size();
  return product;
}

std::int64_t max_shard_numel(const Mesh& mesh, const Shape& shape, const Layout& layout) {
  std::int64_t product = 1;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    product *= shard_interval(mesh, shape[d], layout.dims[d], 0).size();
  }
  return product;
}

}  // namespace meshtorch
