// SPDX-License-Identifier: Apache-2.0
//
// Logical axes: dims have names that say what they are ("embed", "heads", "batch"), and one table says
// where each name lies on the mesh, for parameters and activations. Another mesh is another table; the
// model stays as it is. (Flax's logical_axis_rules, MaxText's, T5X's.)
//
//   const LogicalAxes where{{"batch", axes("dp", "fsdp")}, {"length", whole},
//                           {"embed", "fsdp"}, {"heads", "tp"}, {"mlp", "tp"}, {"vocab", "tp"}};
//   const LogicalNames names{{"(q|k|v)\\.weight", {"heads", "embed"}},
//                            {"out\\.weight", {"embed", "heads"}}};
//   shard(*model, mesh, where.with_names(names));
//   x = reshard(x, where.spec({"batch", "length", "embed"}));    // P((dp, fsdp)): fsdp is taken
//
// Rules are tried in the order of the table. A rule gives its axes to the first dim of its name that has
// none yet, if all of them are free in this tensor; else the name's next rule gets its turn. So
// {"embed", "fsdp"}, {"embed", whole} says what the last line shows, and so does {"embed", "fsdp"} alone,
// with a note in the report.
#pragma once

#include <initializer_list>
#include <regex>
#include <string>
#include <vector>

#include <meshtorch/tree/leaf.h>

namespace meshtorch {

// The axes of one name, major to minor; none: whole.
struct LogicalRule {
  LogicalRule(std::string name, std::string axis) : name(std::move(name)), axes{std::move(axis)} {}
  LogicalRule(std::string name, DimSpec axes) : name(std::move(name)), axes(std::move(axes)) {}
  LogicalRule(std::string name, Whole) : name(std::move(name)) {}

  std::string name;
  DimSpec axes;
  friend bool operator==(const LogicalRule&, const LogicalRule&) = default;
};

// What the dims of the leaves are called whose path the pattern is found in. "-" is a dim without a name;
// dims after the last name have none. The first pattern that fires counts.
struct LogicalName {
  std::string pattern;
  std::vector<std::string> names;
  friend bool operator==(const LogicalName&, const LogicalName&) = default;
};
using LogicalNames = std::vector<LogicalName>;

class LogicalAxes {
 public:
  static constexpr const char* kKind = "LogicalAxes";

  // Throws Error: an empty name, an ill-formed or repeated axis in one rule.
  LogicalAxes(std::initializer_list<LogicalRule> rules);
  explicit LogicalAxes(std::vector<LogicalRule> rules);
  // With names by path; a leaf's own (Leaf::names) come first. Throws Error on a regex that does not compile
  // and on a name that no rule has.
  LogicalAxes with_names(LogicalNames names) const;

  // For tensors that have no path, activations before all. Throws Error on a name that no rule has.
  PartitionSpec spec(const std::vector<std::string>& names) const;

  const std::vector<LogicalRule>& rules() const { return rules_; }
  const LogicalNames& names() const { return names_; }
  std::string to_string() const;  // "embed: fsdp; batch: (dp, fsdp); length: -"
  friend bool operator==(const LogicalAxes& a, const LogicalAxes& b) {
    return a.rules_ == b.rules_ && a.names_ == b.names_;
  }

  // For Rules, as in path_rules.h. Throws Error with the leaf's path: an unknown name, more names than dims.
  std::vector<std::string> rule_names() const { return {kKind}; }
  std::vector<int> fires(const Leaf& leaf) const;
  SpecDecision decide(const Leaf& leaf, int rule) const;
  std::vector<std::string> unused_entries(const std::vector<Leaf>& leaves) const;  // patterns

 private:
  const std::vector<std::string>* names_of(const Leaf& leaf) const;  // null: it has none
  // Throws Error where a name is that of no rule.
  void check_names(const std::vector<std::string>& names, const std::string& where) const;
  SpecDecision assign(const std::vector<std::string>& names) const;

  std::vector<LogicalRule> rules_;
  LogicalNames names_;
  std::vector<std::regex> compiled_;
};

}  // namespace meshtorch
