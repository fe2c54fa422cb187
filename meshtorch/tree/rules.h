// SPDX-License-Identifier: Apache-2.0
//
// How the leaves of a tree are to lie, as a list of rules asked in turn:
//
//   shard(*model, mesh, {PathRules{{"up\\.weight", P("tp")}, {"down\\.weight", P(whole, "tp")}},
//                        LogicalAxes{{"embed", "fsdp"}, {"vocab", "tp"}}.with_names(names),
//                        FsdpRule("fsdp", {.min_size = 1 << 16})});
//
//   kind         says                                                            header
//   PathRules    a spec by a pattern in the path                                 path_rules.h
//   LogicalAxes  mesh axes by what the dims are called                           logical_axes.h
//   PolicyRule   a spec by a function of the leaf                                policy_rule.h
//   SpecTable    a spec by exact path (by_structure, what programs compute)      spec_table.h
//   FsdpRule     one axis more, on the largest dim that it divides               fsdp_rule.h
//
// The first of PathRules, LogicalAxes, PolicyRule and SpecTable that knows a leaf decides what it gets;
// those after it are not asked. A PathRules with otherwise(Unmatched::replicate) knows every leaf. Then each
// FsdpRule adds its axis to that; it decides alone where nothing did. FsdpRules come last.
//
// A leaf that nothing decides is an error unless otherwise() says what it gets or it is a buffer; so is one
// that no FsdpRule adds to and no other rule knows, where there are others. Leaves of one tie (a tensor under
// several paths) get what the first of them that a rule knows gets.
#pragma once

#include <concepts>
#include <initializer_list>
#include <string>
#include <variant>
#include <vector>

#include <meshtorch/tree/fsdp_rule.h>
#include <meshtorch/tree/logical_axes.h>
#include <meshtorch/tree/path_rules.h>
#include <meshtorch/tree/policy_rule.h>
#include <meshtorch/tree/spec_table.h>

namespace meshtorch {

using Rule = std::variant<PathRules, LogicalAxes, PolicyRule, SpecTable, FsdpRule>;

template <class T>
concept RuleKind = std::same_as<T, PathRules> || std::same_as<T, LogicalAxes> ||
    std::same_as<T, PolicyRule> || std::same_as<T, SpecTable> || std::same_as<T, FsdpRule>;

class Rules {
 public:
  Rules() = default;
  template <RuleKind Kind>
  Rules(Kind rule) : rules_{std::move(rule)} {}  // NOLINT: implicit
  // {{"weight", P("tp")}, {"bias", P()}} is PathRules of these.
  Rules(std::initializer_list<PathRule> rules) : Rules(PathRules(rules)) {}
  // Throws Error where a rule that decides comes after an FsdpRule, which adds to what is decided.
  Rules(std::initializer_list<Rule> rules) : Rules(std::vector<Rule>(rules)) {}
  explicit Rules(std::vector<Rule> rules);

  // What leaves that no rule decides get: an error that names them all (default), or P().
  Rules otherwise(Unmatched unmatched) const;
  // A dim that does not divide is an Error. (Else it is legal, and noted: layout/shard.h.)
  Rules even() const;

  // Throws Error with the leaf's path: nothing decides it, the spec is longer than its rank, an axis or a
  // logical axis that is not known, tied leaves whose rules disagree, heads that would be cut or are fewer
  // than the devices they go to, a dim that does not divide if even().
  MatchReport match(const Mesh& mesh, const std::vector<Leaf>& leaves) const;

  const std::vector<Rule>& rules() const { return rules_; }
  Unmatched unmatched() const { return unmatched_; }
  bool is_even() const { return even_; }
  // One line a rule, numbered as in reports.
  std::string to_string() const;
  friend bool operator==(const Rules&, const Rules&) = default;

 private:
  std::vector<Rule> rules_;
  Unmatched unmatched_ = Unmatched::error;
  bool even_ = false;
};

}  // namespace meshtorch
