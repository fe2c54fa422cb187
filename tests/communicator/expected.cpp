// SPDX-License-Identifier: Apache-2.0
#include "expected.h"

#include <algorithm>

#include <ATen/ATen.h>

namespace meshtorch::suite {
namespace {

std::int64_t rank_of(const Mesh& mesh, AxisList axes, std::int64_t position) {
  const auto coordinates = mesh.coordinates(position);
  std::int64_t rank = 0;
  for (int i = 0; i < axes.size(); ++i) {
    const auto axis = static_cast<std::size_t>(axes[i]);
    rank = rank * mesh.axes()[axis].size + coordinates[axis];
  }
  return rank;
}

bool together(const Mesh& mesh, AxisList axes, std::int64_t a, std::int64_t b) {
  const auto left = mesh.coordinates(a), right = mesh.coordinates(b);
  for (int axis = 0; axis < mesh.rank(); ++axis) {
    const auto i = static_cast<std::size_t>(axis);
    if (!axes.contains(axis) && left[i] != right[i]) return false;
  }
  return true;
}

at::Tensor combine_two(const at::Tensor& a, const at::Tensor& b, Reduction reduction) {
  if (reduction == Reduction::sum) return a + b;
  return reduction == Reduction::max ? at::max(a, b) : at::min(a, b);
}

// Halves, the first the larger.
at::Tensor tree(const Shards& parts, Reduction reduction) {
  if (parts.size() == 1) return parts[0];
  const auto half = static_cast<std::ptrdiff_t>((parts.size() + 1) / 2);
  return combine_two(tree(Shards(parts.begin(), parts.begin() + half), reduction),
                     tree(Shards(parts.begin() + half, parts.end()), reduction), reduction);
}

at::Tensor chunk_for(const Request& request, const at::Tensor& whole, std::int64_t position) {
  const auto [begin, end] =
      nested_chunk(request.mesh, request.axes, whole.size(request.dim), position);
  return whole.slice(request.dim, begin, end);
}

at::Tensor whole_of_permute(const Case& test) {
  const Request& request = test.request;
  at::Tensor whole = at::zeros(request.shape, test.inputs[0].options());
  for (std::size_t i = 0; i < test.inputs.size(); ++i)
    cut(request.mesh, whole, request.from, static_cast<std::int64_t>(i)).copy_(test.inputs[i]);
  return whole;
}

at::Tensor result(const Case& test, std::int64_t position) {
  const Request& request = test.request;
  Shards parts;
  for (const std::int64_t member : group_of(request.mesh, request.axes, position))
    parts.push_back(test.inputs[static_cast<std::size_t>(member)]);
  switch (request.kind) {
    case Collective::all_reduce:
      return tree(parts, request.reduction);
    case Collective::all_gather:
      return at::cat(parts, request.dim);
    case Collective::reduce_scatter:
      return chunk_for(request, tree(parts, Reduction::sum), position);
    case Collective::all_to_all:
      for (at::Tensor& part : parts) part = chunk_for(request, part, position);
      return at::cat(parts, request.concat_dim);
    case Collective::broadcast:
      return parts[static_cast<std::size_t>(request.root)];
    case Collective::permute:
      return cut(request.mesh, whole_of_permute(test), request.to, position);
  }
  return {};
}

}  // namespace

std::vector<std::int64_t> group_of(const Mesh& mesh, AxisList axes, std::int64_t position) {
  std::vector<std::int64_t> members;
  for (std::int64_t other = 0; other < mesh.size(); ++other) {
    if (together(mesh, axes, position, other)) members.push_back(other);
  }
  std::sort(members.begin(), members.end(), [&](std::int64_t a, std::int64_t b) {
    return rank_of(mesh, axes, a) < rank_of(mesh, axes, b);
  });
  return members;
}

std::pair<std::int64_t, std::int64_t> nested_chunk(const Mesh& mesh, AxisList axes,
                                                   std::int64_t size, std::int64_t position) {
  const auto coordinates = mesh.coordinates(position);
  std::int64_t begin = 0, end = size;
  for (int i = 0; i < axes.size(); ++i) {
    const auto axis = static_cast<std::size_t>(axes[i]);
    const std::int64_t count = mesh.axes()[axis].size;
    const std::int64_t step = (end - begin + count - 1) / count;
    const std::int64_t first = std::min(begin + coordinates[axis] * step, end);
    end = std::min(first + step, end);
    begin = first;
  }
  return {begin, end};
}

at::Tensor cut(const Mesh& mesh, const at::Tensor& whole, const Layout& layout,
               std::int64_t position) {
  at::Tensor piece = whole;
  for (std::int64_t dim = 0; dim < whole.dim(); ++dim) {
    const auto [begin, end] =
        nested_chunk(mesh, layout.dims[static_cast<std::size_t>(dim)], whole.size(dim), position);
    piece = piece.slice(dim, begin, end);
  }
  return piece;
}

Shards expected(const Case& test) {
  Shards results;
  for (std::int64_t position = 0; position < test.request.mesh.size(); ++position)
    results.push_back(result(test, position).clone(at::MemoryFormat::Contiguous));
  return results;
}

}  // namespace meshtorch::suite
