// SPDX-License-Identifier: Apache-2.0
//
// Rules from paths to specs. A leaf's path is libtorch's own name, with dots. A rule's regex (ECMAScript)
// is searched in it, not matched whole; the first rule that fires wins, and the report says which one
// did and which others would have.
#pragma once

#include <initializer_list>
#include <regex>
#include <string>
#include <vector>

#include <meshtorch/tree/match_report.h>

namespace meshtorch {

struct PathRule {
  std::string pattern;
  PartitionSpec spec;
  Heads heads = {};
  friend bool operator==(const PathRule&, const PathRule&) = default;
};

enum class Unmatched { error, replicate };

class PathRules {
 public:
  static constexpr const char* kKind = "PathRules";

  // Throws Error on a regex that does not compile (the message holds the pattern and why).
  PathRules(std::initializer_list<PathRule> rules);
  explicit PathRules(std::vector<PathRule> rules);

  // What leaves that no rule fires for get: an error that names them all (default), or P().
  PathRules otherwise(Unmatched unmatched) const;

  // Rules(*this).match(...): see there (rules.h).
  MatchReport match(const Mesh& mesh, const std::vector<Leaf>& leaves) const;

  const std::vector<PathRule>& rules() const { return rules_; }
  Unmatched unmatched() const { return unmatched_; }
  friend bool operator==(const PathRules& a, const PathRules& b) {
    return a.rules_ == b.rules_ && a.unmatched_ == b.unmatched_;
  }

  // For Rules: how messages name each rule, which fire for a leaf (first to last), what one says.
  std::vector<std::string> rule_names() const;
  std::vector<int> fires(const Leaf& leaf) const;
  SpecDecision decide(const Leaf& leaf, int rule) const;

 private:
  std::vector<PathRule> rules_;
  std::vector<std::regex> compiled_;
  Unmatched unmatched_ = Unmatched::error;
};

}  // namespace meshtorch
