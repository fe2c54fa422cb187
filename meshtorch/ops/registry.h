// SPDX-License-Identifier: Apache-2.0
//
// The table of all op rules: one line per op, grouped in families (one file each).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <meshtorch/ops/op_call.h>

namespace meshtorch {

using RuleFunction = std::function<OpRule(const OpCall&)>;

struct OpEntry {
  std::string name;    // "aten::mm"
  std::string family;  // "matmul"
  std::string text;    // the notation, or what the function does where it depends on attributes
  RuleFunction rule;
};

// A value owned by the Runtime, filled once with the built-in families.
class OpRegistry {
 public:
  static OpRegistry built_in();
  // Throws Error where the op has a rule already.
  void add(OpEntry entry);
  const OpEntry* find(std::string_view name) const;                 // null: no rule
  const std::vector<OpEntry>& entries() const { return entries_; }  // in order of addition
  // Changes with every change of the table: what was decided under another is out of date.
  std::uint64_t revision() const { return revision_; }

 private:
  std::vector<OpEntry> entries_;
  std::unordered_map<std::string, std::size_t> by_name_;
  std::uint64_t revision_ = 0;
};

// The table as Markdown, one section a family: op, rule, in which operands it is linear.
std::string coverage_table(const OpRegistry& registry);

}  // namespace meshtorch
