// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/comm/distributed/leaves.h>

#include <algorithm>

namespace meshtorch {
namespace {

bool one_process(const GroupRoute& group, std::size_t begin, std::size_t end) {
  return std::all_of(
      group.members.begin() + static_cast<std::ptrdiff_t>(begin),
      group.members.begin() + static_cast<std::ptrdiff_t>(end),
      [&](const auto& member) { return member.process == group.members[begin].process; });
}

void collect(const GroupRoute& group, std::size_t begin, std::size_t end,
             std::vector<Subtree>& leaves) {
  if (one_process(group, begin, end)) {
    leaves.push_back({.process = group.members[begin].process, .begin = begin, .end = end});
    return;
  }
  const std::size_t middle = tree_middle(begin, end);
  collect(group, begin, middle, leaves);
  collect(group, middle, end, leaves);
}

// The values of the leaves, taken in order while the tree above them is walked.
struct Values {
  Shards::const_iterator next;
  Reduction reduction;

  // Of the subtree over [begin, end), into `out` where there is one.
  at::Tensor combined(const GroupRoute& group, std::size_t begin, std::size_t end,
                      at::Tensor* out) {
    if (one_process(group, begin, end)) return *next++;
    const std::size_t middle = tree_middle(begin, end);
    const at::Tensor left = combined(group, begin, middle, nullptr);
    const at::Tensor right = combined(group, middle, end, nullptr);
    if (out == nullptr) return combine(left, right, reduction);
    combine_out(*out, left, right, reduction);
    return *out;
  }
};

}  // namespace

std::vector<Subtree> leaves_of(const GroupRoute& group) {
  std::vector<Subtree> leaves;
  collect(group, 0, group.members.size(), leaves);
  return leaves;
}

at::Tensor combine_leaf(const GroupRoute& group, const Subtree& leaf, const Shards& shards,
                        Reduction reduction) {
  Shards parts;
  for (std::size_t rank = leaf.begin; rank < leaf.end; ++rank)
    parts.push_back(shards[group.members[rank].index]);
  return combine_tree(parts, 0, parts.size(), reduction);
}

void combine_leaves(at::Tensor& out, const GroupRoute& group, const Shards& values,
                    Reduction reduction) {
  Values{values.begin(), reduction}.combined(group, 0, group.members.size(), &out);
}

}  // namespace meshtorch
