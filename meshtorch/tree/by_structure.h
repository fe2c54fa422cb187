// SPDX-License-Identifier: Apache-2.0
//
// Specs given as a tree of the model's shape, where a struct says it more readably than patterns do:
//
//   struct Block { Tensor up, down; };                   struct BlockSpecs { P up, down; };
//   struct Model { Tensor tokens; std::vector<Block> layers; };
//   struct Specs { P tokens; std::vector<BlockSpecs> layers; };
//
//   shard(model, mesh, by_structure(Specs{P("tp"), {{P("tp"), P(whole, "tp")}, {P("tp"), P(whole, "tp")}}}));
//
// Paths are those of tree/walk.h on both sides. Leaves of the model that the tree of specs does not have are
// left to the next rule; specs that the model has no leaf for are listed in the report, so that an optional
// leaf has a P and not a std::optional<P> in the structs of specs.
//
// Names of dims can be given so, too, for LogicalAxes:
//
//   struct MlpNames { std::vector<std::string> up, down; };
//   where.with_names(names_by_structure(MlpNames{{"mlp", "embed"}, {"embed", "mlp"}}))
#pragma once

#include <map>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <meshtorch/base/error.h>
#include <meshtorch/tree/logical_axes.h>
#include <meshtorch/tree/pattern.h>
#include <meshtorch/tree/spec_table.h>
#include <meshtorch/tree/walk.h>

namespace meshtorch {

class SpecCollector {
 public:
  template <class T>
  static constexpr bool kLeaf = std::is_same_v<T, PartitionSpec>;

  void leaf(const std::string& path, const PartitionSpec& spec) {
    const auto [entry, fresh] = entries_.emplace(path, SpecTable::Entry{.spec = spec});
    if (fresh || entry->second.spec == spec) return;
    fail({.op = "by_structure",
          .where = path,
          .what = text("is there twice, with ", entry->second.spec, " and ", spec),
          .remedy = "name the parts so that their paths differ"});
  }
  std::map<std::string, SpecTable::Entry> take() { return std::move(entries_); }

 private:
  std::map<std::string, SpecTable::Entry> entries_;
};

// Throws Error where two specs have one path.
template <class Tree>
SpecTable by_structure(const Tree& specs, std::string name = "by_structure") {
  SpecCollector collector;
  walk(specs, collector);
  return SpecTable(std::move(name), collector.take());
}

struct NameCollector {
  using Names = std::vector<std::string>;
  template <class T>
  static constexpr bool kLeaf = std::is_same_v<T, Names>;

  void leaf(const std::string& path, const Names& names) {
    found.push_back({exact_pattern(path), names});
  }
  LogicalNames found = {};
};

// Leaves are vectors of names.
template <class Tree>
LogicalNames names_by_structure(const Tree& names) {
  NameCollector collector;
  walk(names, collector);
  return std::move(collector.found);
}

}  // namespace meshtorch
