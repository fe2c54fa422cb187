// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/tree/path_rules.h>

#include <meshtorch/base/error.h>
#include <meshtorch/tree/pattern.h>
#include <meshtorch/tree/rules.h>

namespace meshtorch {

PathRules::PathRules(std::initializer_list<PathRule> rules)
    : PathRules(std::vector<PathRule>(rules)) {}

PathRules::PathRules(std::vector<PathRule> rules) : rules_(std::move(rules)) {
  for (std::size_t r = 0; r < rules_.size(); ++r) {
    compiled_.push_back(compile_pattern(rules_[r].pattern, kKind,
                                        text("rule ", r, " \"", rules_[r].pattern, "\"")));
  }
}

PathRules PathRules::otherwise(Unmatched unmatched) const {
  PathRules rules = *this;
  rules.unmatched_ = unmatched;
  return rules;
}

MatchReport PathRules::match(const Mesh& mesh, const std::vector<Leaf>& leaves) const {
  return Rules(*this).match(mesh, leaves);
}

std::vector<std::string> PathRules::rule_names() const {
  std::vector<std::string> names;
  for (const PathRule& rule : rules_) names.push_back("\"" + rule.pattern + "\"");
  return names;
}

std::vector<int> PathRules::fires(const Leaf& leaf) const {
  std::vector<int> fired;
  for (std::size_t r = 0; r < compiled_.size(); ++r) {
    if (search_pattern(compiled_[r], leaf.path, kKind, rules_[r].pattern))
      fired.push_back(static_cast<int>(r));
  }
  return fired;
}

SpecDecision PathRules::decide(const Leaf&, int rule) const {
  const PathRule& fired = rules_[static_cast<std::size_t>(rule)];
  return {.spec = fired.spec, .heads = fired.heads};
}

}  // namespace meshtorch
