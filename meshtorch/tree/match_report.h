// SPDX-License-Identifier: Apache-2.0
//
// What a rule set did with a tree: which rule fired for which leaf, what the leaf got, and which rules
// could have been left out. It prints as a table:
//
//   path           shape      rule  spec         bytes per device  note
//   -------------  ---------  ----  -----------  ----------------  ---------------------------------------
//   tokens.weight  [257, 16]   0+3  P(tp, fsdp)             4,128  uneven: dim 0 of 257 over tp=2
//   up.bias        [64]          1  P()                       256  not over fsdp: 64 elements of 1,024
//   2 leaves, 4,384 bytes per device
//   rule 2 "norm" is unused: it fits no leaf
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <meshtorch/tree/leaf.h>

namespace meshtorch {

// One line of the report.
struct Match {
  Leaf leaf;
  int rule = -1;           // which rule decided; -1: none
  std::vector<int> added;  // which rules added an axis to what that one gave
  PartitionSpec spec;
  std::int64_t bytes_per_device = 0;  // of the largest shard
  bool repeated = false;              // an earlier line is of the same tensor
  std::string note;                   // "uneven: dim 0 of 50257 over tp=2", "tied to tokens.weight"
};

// A line of a rule that has several: a path of a table, a pattern of logical names.
struct UnusedEntry {
  int rule = -1;
  std::string entry;
  friend bool operator==(const UnusedEntry&, const UnusedEntry&) = default;
};

struct MatchReport {
  std::vector<std::string> rules;  // as messages name them: "\"up\\.weight\"", "FsdpRule(fsdp)"
  std::vector<Match> matches;      // in the order of the leaves
  std::vector<int> unused_rules;   // fired for no leaf and never would have
  std::vector<int>
      shadowed_rules;  // would have fired for some leaf, but an earlier rule always did
  std::vector<UnusedEntry> unused_entries;  // of rules that are used

  std::string rule_text(int rule) const;  // "rule 3 \"up\\.weight\""
  std::string to_string() const;  // a table: path, shape, rule, spec, bytes per device, note
};

}  // namespace meshtorch
