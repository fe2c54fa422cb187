// SPDX-License-Identifier: Apache-2.0
//
// Specs by exact path: what programs that compute specs make, and by_structure of a tree of specs.
//
//   SpecTable("megatron", {{"layers.0.up.weight", {P("tp"), "column"}},
//                          {"layers.0.down.weight", {P(whole, "tp"), "row"}}})
//
// Paths that the tree does not have are listed in the report.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <meshtorch/tree/leaf.h>

namespace meshtorch {

class SpecTable {
 public:
  static constexpr const char* kKind = "SpecTable";

  struct Entry {
    PartitionSpec spec;
    std::string note = {};  // for the report: "column", "row"
    Heads heads = {};
    friend bool operator==(const Entry&, const Entry&) = default;
  };

  // The name is for reports.
  SpecTable(std::string name, std::map<std::string, Entry> entries)
      : label_(std::move(name)), entries_(std::move(entries)) {}

  const std::string& label() const { return label_; }
  const std::map<std::string, Entry>& entries() const { return entries_; }
  friend bool operator==(const SpecTable&, const SpecTable&) = default;

  // For Rules, as in path_rules.h.
  std::vector<std::string> rule_names() const {
    return {label_.empty() ? kKind : kKind + (" " + label_)};
  }
  std::vector<int> fires(const Leaf& leaf) const;
  SpecDecision decide(const Leaf& leaf, int rule) const;
  std::vector<std::string> unused_entries(const std::vector<Leaf>& leaves) const;

 private:
  std::string label_;
  std::map<std::string, Entry> entries_;
};

}  // namespace meshtorch
