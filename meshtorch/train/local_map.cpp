// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/train/local_map.h>

#include <meshtorch/base/error.h>

namespace meshtorch {

RankSpecs::RankSpecs(PartitionSpec all)
    : rule_([all = std::move(all)](std::vector<RankLeaf>& leaves, const TreeSlots&) {
        for (RankLeaf& leaf : leaves) leaf.spec = all;
      }) {}

RankSpecs::RankSpecs(std::vector<PartitionSpec> each)
    : rule_([each = std::move(each)](std::vector<RankLeaf>& leaves, const TreeSlots&) {
        if (each.size() != leaves.size()) {
          fail({.op = "local_map",
                .where = "specs",
                .what = text("got ", each.size(), " for a tree of ", leaves.size(), " tensors"),
                .remedy = "give one spec for all of them, or one for each"});
        }
        for (std::size_t i = 0; i < each.size(); ++i) leaves[i].spec = each[i];
      }) {}

std::vector<RankLeaf> RankSpecs::of(const TreeSlots& tree, const std::string& what) const {
  std::vector<RankLeaf> leaves;
  for (const TreeSlot& slot : tree.slots) {
    if (slot.tensor.defined())
      leaves.push_back({.path = slot.path,
                        .tensor = slot.tensor,
                        .of_module = slot.of_module,
                        .buffer = slot.buffer});
  }
  rule_(leaves, tree);
  for (RankLeaf& leaf : leaves) leaf.path = leaf.path.empty() ? what : what + " " + leaf.path;
  return leaves;
}

namespace detail {

void check_count(std::size_t specs, std::size_t arguments) {
  if (specs == arguments) return;
  fail({.op = "local_map",
        .where = "in_specs",
        .what = text("has ", specs, " entries (of pmap: in_axes), fn was given ", arguments,
                     " arguments"),
        .remedy = "give one for each argument"});
}

}  // namespace detail
}  // namespace meshtorch
