// SPDX-License-Identifier: Apache-2.0
//
// A rule that is a function of the leaf, for what no pattern says:
//
//   PolicyRule("experts", [](const Leaf& leaf) -> std::optional<PartitionSpec> {
//     if (leaf.shape.size() == 3) return P("ep");       // [experts, in, out]
//     return std::nullopt;                              // not mine: the next rule is asked
//   })
//
// It is asked once for every leaf in every match, on every process: it must answer alike each time.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <meshtorch/tree/leaf.h>

namespace meshtorch {

class PolicyRule {
 public:
  static constexpr const char* kKind = "PolicyRule";
  using Function = std::function<std::optional<PartitionSpec>(const Leaf&)>;

  // Throws Error where the function is empty. The name is for reports.
  explicit PolicyRule(Function function) : PolicyRule("", std::move(function)) {}
  PolicyRule(std::string name, Function function);

  const std::string& label() const { return label_; }
  // The same function object: functions cannot be compared.
  friend bool operator==(const PolicyRule& a, const PolicyRule& b) {
    return a.function_ == b.function_ && a.label_ == b.label_;
  }

  // For Rules, as in path_rules.h.
  std::vector<std::string> rule_names() const {
    return {label_.empty() ? kKind : kKind + (" " + label_)};
  }
  std::vector<int> fires(const Leaf& leaf) const;
  SpecDecision decide(const Leaf& leaf, int rule) const;

 private:
  std::string label_;
  std::shared_ptr<const Function> function_;
};

}  // namespace meshtorch
