// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/tree/activation_rules.h>

#include <algorithm>
#include <array>
#include <regex>

#include <meshtorch/base/error.h>
#include <meshtorch/base/table.h>
#include <meshtorch/tree/pattern.h>

namespace meshtorch {
namespace {

constexpr std::array<const char*, 7> kOps{"linear",     "embedding",   "layer_norm", "rms_norm",
                                          "group_norm", "convolution", "module"};
const std::string kModule = "module";

std::string rule_text(const std::vector<ActivationRule>& rules, std::size_t rule) {
  return text("rule ", rule, " \"", rules[rule].pattern, "\"");
}

void check(const std::vector<ActivationRule>& rules, std::size_t r, const Mesh& mesh) {
  const std::string where = rule_text(rules, r);
  const std::string& op = rules[r].op;
  if (!op.empty() && std::ranges::find(kOps, op) == kOps.end()) {
    fail({.op = "constrain",
          .where = where,
          .what = text("no activation is constrained by op \"", op, "\""),
          .remedy = "use one of: " + join(kOps)});
  }
  const auto known = [&](const std::optional<PartitionSpec>& spec, const char* which) {
    if (!spec) return;
    resolve(mesh, *spec, static_cast<std::int64_t>(spec->dims().size()), "constrain",
            where + " " + which);
  };
  known(rules[r].input, "input");
  known(rules[r].output, "output");
}

std::vector<std::regex> compile(const std::vector<ActivationRule>& rules, const Mesh& mesh) {
  std::vector<std::regex> patterns;
  for (std::size_t r = 0; r < rules.size(); ++r) {
    patterns.push_back(compile_pattern(rules[r].pattern, "constrain", rule_text(rules, r)));
    check(rules, r, mesh);
  }
  return patterns;
}

void refuse_idle(const std::vector<ActivationRule>& rules, std::size_t r,
                 const std::vector<std::string>& paths, const std::vector<std::string>& modules) {
  const bool of_modules = rules[r].op == kModule;
  const std::vector<std::string>& meant = of_modules || paths.empty() ? modules : paths;
  fail({.op = "constrain",
        .where = rule_text(rules, r),
        .what = of_modules        ? "fires for no child of a Sequential"
                : modules.empty() ? "fires for no parameter"
                                  : "fires for no parameter and for no child of a Sequential",
        .remedy = meant.empty() ? "there are none" : "correct it: paths are as " + meant[0]});
}

std::string spec_text(const std::optional<PartitionSpec>& spec) {
  return spec ? spec->to_string() : "";
}

}  // namespace

ConstraintReport match_activations(const std::vector<ActivationRule>& rules, const Mesh& mesh,
                                   const std::vector<std::string>& paths,
                                   const std::vector<std::string>& modules) {
  const std::vector<std::regex> patterns = compile(rules, mesh);
  ConstraintReport report{.rules = rules};
  std::vector<bool> fires(rules.size()), wins(rules.size());
  // One path, by the rules that may be asked for it: the first for every op wins.
  const auto match = [&](const std::string& path, bool module, const std::vector<bool>& asked) {
    const auto first = static_cast<std::ptrdiff_t>(report.matches.size());
    for (std::size_t r = 0; r < rules.size(); ++r) {
      if (!asked[r] || !search_pattern(patterns[r], path, "constrain", rules[r].pattern)) continue;
      fires[r] = true;
      const std::string& op = module ? kModule : rules[r].op;
      const auto winner = std::find_if(
          report.matches.begin() + first, report.matches.end(),
          [&](const ActivationMatch& before) { return before.op.empty() || before.op == op; });
      if (winner != report.matches.end()) {
        winner->note += (winner->note.empty() ? "also fits rule " : ", ") + std::to_string(r);
        continue;
      }
      wins[r] = true;
      report.matches.push_back({.path = path,
                                .rule = static_cast<int>(r),
                                .input = rules[r].input,
                                .output = rules[r].output,
                                .op = op,
                                .note = {}});
    }
  };
  std::vector<bool> asked(rules.size());
  for (std::size_t r = 0; r < rules.size(); ++r) asked[r] = rules[r].op != kModule;
  for (const std::string& path : paths) match(path, false, asked);
  for (std::size_t r = 0; r < rules.size(); ++r)
    asked[r] = rules[r].op == kModule || (rules[r].op.empty() && !fires[r]);
  for (const std::string& path : modules) match(path, true, asked);
  for (std::size_t r = 0; r < rules.size(); ++r) {
    if (!fires[r]) refuse_idle(rules, r, paths, modules);
    if (!wins[r]) report.shadowed_rules.push_back(static_cast<int>(r));
  }
  return report;
}

std::string ConstraintReport::to_string() const {
  Table table({{"path"}, {"op"}, {"rule", Align::right}, {"input"}, {"output"}, {"note"}});
  for (const ActivationMatch& match : matches) {
    table.add({match.path, match.op.empty() ? "any" : match.op, std::to_string(match.rule),
               spec_text(match.input), spec_text(match.output), match.note});
  }
  std::string out = table.to_string();
  for (const int rule : shadowed_rules) {
    out += rule_text(rules, static_cast<std::size_t>(rule)) +
           " is shadowed: an earlier rule wins every path it fits\n";
  }
  return out;
}

}  // namespace meshtorch
