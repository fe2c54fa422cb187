// SPDX-License-Identifier: Apache-2.0
//
// Rules from paths to specs. A leaf's path is libtorch's own name, with dots. A rule's regex (ECMAScript)
// is searched in it, not matched whole; the first rule that fires wins, and the report says which one
// did and which others would have.
#pragma once

#include <cstdint>
#include <regex>
#include <string>
#include <vector>

#include <meshtorch/layout/layout.h>

namespace meshtorch {

struct PathRule {
  std::string pattern;
  PartitionSpec spec;
};

// What a rule set is applied to: one tensor of the tree.
struct Leaf {
  std::string path;
  Shape shape;
  std::int64_t item_size = 4;
  // Leaves with the same non-negative tie are one tensor under several paths.
  int tie = -1;
};

// One line of the report.
struct Match {
  Leaf leaf;
  int rule = -1;  // which rule fired; -1: none
  PartitionSpec spec;
  std::int64_t bytes_per_device = 0;  // of the largest shard
  std::string note;                   // "uneven: dim 0 of 50257 over tp=2", "tied to tokens.weight"
};

struct MatchReport {
  std::vector<PathRule> rules;
  std::vector<Match> matches;     // in the order of the leaves
  std::vector<int> unused_rules;  // fired for no leaf and never would have
  std::vector<int>
      shadowed_rules;             // would have fired for some leaf, but an earlier rule always did
  std::string to_string() const;  // a table: path, shape, rule, spec, bytes per device, note
};

enum class Unmatched { error, replicate };

class PathRules {
 public:
  // Throws Error on a regex that does not compile (the message holds the pattern and why).
  PathRules(std::initializer_list<PathRule> rules);
  explicit PathRules(std::vector<PathRule> rules);

  // What leaves that no rule fires for get: an error that names them all (default), or P().
  PathRules otherwise(Unmatched unmatched) const;

  // Throws Error with the leaf's path: no rule fires, spec longer than the leaf's rank, unknown axis,
  // tied leaves whose rules disagree.
  MatchReport match(const Mesh& mesh, const std::vector<Leaf>& leaves) const;

 private:
  std::vector<PathRule> rules_;
  std::vector<std::regex> compiled_;
  Unmatched unmatched_ = Unmatched::error;
};

}  // namespace meshtorch
