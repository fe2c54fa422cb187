// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/comm/combine.h>

#include <ATen/ATen.h>

namespace meshtorch {

at::Tensor combine(const at::Tensor& a, const at::Tensor& b, Reduction reduction) {
  switch (reduction) {
    case Reduction::sum:
      return at::add(a, b);
    case Reduction::max:
      return at::maximum(a, b);
    case Reduction::min:
      return at::minimum(a, b);
  }
  return {};
}

void combine_out(at::Tensor& out, const at::Tensor& a, const at::Tensor& b, Reduction reduction) {
  switch (reduction) {
    case Reduction::sum:
      at::add_out(out, a, b);
      break;
    case Reduction::max:
      at::maximum_out(out, a, b);
      break;
    case Reduction::min:
      at::minimum_out(out, a, b);
      break;
  }
}

at::Tensor combine_tree(const Shards& parts, std::size_t begin, std::size_t end,
                        Reduction reduction) {
  const std::size_t count = end - begin;
  if (count == 1) return parts[begin];
  if (count == 2) return combine(parts[begin], parts[begin + 1], reduction);
  const std::size_t middle = tree_middle(begin, end);
  at::Tensor left = combine_tree(parts, begin, middle, reduction);
  combine_out(left, left, combine_tree(parts, middle, end, reduction), reduction);
  return left;
}

at::Tensor fresh(const at::Tensor& tensor) { return tensor.clone(at::MemoryFormat::Contiguous); }

at::Tensor fresh_tree(const Shards& parts, Reduction reduction) {
  if (parts.size() == 1) return fresh(parts[0]);
  return combine_tree(parts, 0, parts.size(), reduction).contiguous();
}

at::Tensor narrow(const at::Tensor& tensor, std::int64_t dim, Interval piece) {
  return tensor.narrow(dim, piece.begin, piece.size());
}

at::Tensor narrow(at::Tensor tensor, const Box& box, const Box& origin) {
  for (std::size_t dim = 0; dim < box.size(); ++dim) {
    tensor = tensor.narrow(static_cast<std::int64_t>(dim), box[dim].begin - origin[dim].begin,
                           box[dim].size());
  }
  return tensor;
}

Shards members(const Shards& shards, const std::vector<std::int64_t>& group) {
  Shards parts;
  parts.reserve(group.size());
  for (const std::int64_t position : group)
    parts.push_back(shards[static_cast<std::size_t>(position)]);
  return parts;
}

}  // namespace meshtorch
