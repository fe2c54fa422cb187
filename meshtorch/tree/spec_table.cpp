// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/tree/spec_table.h>

namespace meshtorch {

std::vector<int> SpecTable::fires(const Leaf& leaf) const {
  return entries_.contains(leaf.path) ? std::vector<int>{0} : std::vector<int>{};
}

SpecDecision SpecTable::decide(const Leaf& leaf, int) const {
  const Entry& entry = entries_.at(leaf.path);
  return {.spec = entry.spec, .heads = entry.heads, .note = entry.note};
}

std::vector<std::string> SpecTable::unused_entries(const std::vector<Leaf>& leaves) const {
  std::map<std::string, Entry> unused = entries_;
  for (const Leaf& leaf : leaves) unused.erase(leaf.path);
  std::vector<std::string> paths;
  for (const auto& [path, entry] : unused) paths.push_back(path);
  return paths;
}

}  // namespace meshtorch
