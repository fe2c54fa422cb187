// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/tree/policy_rule.h>

#include <meshtorch/base/error.h>

namespace meshtorch {

PolicyRule::PolicyRule(std::string name, Function function)
    : label_(std::move(name)), function_(std::make_shared<const Function>(std::move(function))) {
  if (!*function_) {
    fail({.op = kKind, .where = label_, .what = "the function is empty", .remedy = "give one"});
  }
}

std::vector<int> PolicyRule::fires(const Leaf& leaf) const {
  return (*function_)(leaf) ? std::vector<int>{0} : std::vector<int>{};
}

SpecDecision PolicyRule::decide(const Leaf& leaf, int) const {
  const std::optional<PartitionSpec> spec = (*function_)(leaf);
  if (!spec) {
    fail({.op = kKind,
          .where = leaf.path,
          .what = "the function gave a spec and then none",
          .remedy = "make it a function of the leaf alone"});
  }
  return {.spec = *spec};
}

}  // namespace meshtorch
