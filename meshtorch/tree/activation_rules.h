// SPDX-License-Identifier: Apache-2.0
//
// Rules for activations: how the input, the output, or both of the op that consumes a parameter are to
// lie. They are named by the parameter, since an activation has no name of its own.
//
//   {"norm.*\\.weight", .input = P("dp", "tp")}            what a norm gets: batch over dp, sequence over tp
//   {"\\.down\\.weight", .output = P("dp", "tp")}          what comes out: a sum over tp is scattered
//   {"^tokens\\.weight$", .output = P("dp", "tp"), .op = "embedding"}   not where it is the head as well
//   {"^blocks\\.3$", .output = P("dp", "tp")}              what a child of a Sequential returns
//
// A regex is searched in the path and the first rule that fires wins, as for path_rules.h; rules that say
// `op` are asked for that op only. A rule that fires for no parameter is asked for the paths of the
// children of torch::nn::Sequential modules; one that says op = "module" for those alone. A rule without
// input and output leaves what it fires for alone.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <meshtorch/layout/layout.h>

namespace meshtorch {

struct ActivationRule {
  std::string pattern;
  std::optional<PartitionSpec> input = std::nullopt;
  std::optional<PartitionSpec> output = std::nullopt;
  // linear, embedding, layer_norm, rms_norm, group_norm, convolution or module; empty: whichever it is.
  std::string op = {};
  friend bool operator==(const ActivationRule&, const ActivationRule&) = default;
};

// One line of the report.
struct ActivationMatch {
  std::string path;  // of a parameter; where op is "module", of a module
  int rule = -1;
  std::optional<PartitionSpec> input, output;
  std::string op;    // empty: any
  std::string note;  // "also fits rule 3"
};

struct ConstraintReport {
  std::vector<ActivationRule> rules;
  std::vector<ActivationMatch>
      matches;  // of a path one for each op that a rule names; unmatched paths: none
  std::vector<int> shadowed_rules;  // fire for some path, but an earlier rule always did
  std::string to_string() const;    // a table: path, op, rule, input, output, note
};

// Throws Error on a regex that does not compile, an op that is none of those above, an axis that is not on
// the mesh, a rule that fires for no path. `modules` are the children of Sequential modules.
ConstraintReport match_activations(const std::vector<ActivationRule>& rules, const Mesh& mesh,
                                   const std::vector<std::string>& paths,
                                   const std::vector<std::string>& modules = {});

}  // namespace meshtorch
