// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/tree/logical_axes.h>

#include <algorithm>
#include <set>

#include <meshtorch/base/error.h>
#include <meshtorch/tree/leaf_checks.h>
#include <meshtorch/tree/pattern.h>

namespace meshtorch {
namespace {

const std::string kNameless = "-";

std::string axes_text(const DimSpec& axes) {
  if (axes.empty()) return "-";
  return axes.size() == 1 ? axes[0] : "(" + join(axes) + ")";
}

void check(const LogicalRule& rule, std::size_t r) {
  if (rule.name.empty() || rule.name == kNameless) {
    fail({.op = LogicalAxes::kKind,
          .where = text("rule ", r),
          .what = text("\"", rule.name, "\" is not the name of a logical axis"),
          .remedy = "name what the dim is, as \"embed\" or \"batch\""});
  }
  PartitionSpec::from({rule.axes});
}

// Every name that has a rule, once, in the order of the rules.
std::vector<std::string> known_names(const std::vector<LogicalRule>& rules) {
  std::vector<std::string> names;
  for (const LogicalRule& rule : rules) {
    if (std::ranges::find(names, rule.name) == names.end()) names.push_back(rule.name);
  }
  return names;
}

}  // namespace

LogicalAxes::LogicalAxes(std::initializer_list<LogicalRule> rules)
    : LogicalAxes(std::vector<LogicalRule>(rules)) {}

LogicalAxes::LogicalAxes(std::vector<LogicalRule> rules) : rules_(std::move(rules)) {
  for (std::size_t r = 0; r < rules_.size(); ++r) check(rules_[r], r);
}

LogicalAxes LogicalAxes::with_names(LogicalNames names) const {
  LogicalAxes named(rules_);
  for (std::size_t n = 0; n < names.size(); ++n) {
    const std::string where = text("names ", n, " \"", names[n].pattern, "\"");
    named.compiled_.push_back(compile_pattern(names[n].pattern, kKind, where));
    check_names(names[n].names, where);
  }
  named.names_ = std::move(names);
  return named;
}

void LogicalAxes::check_names(const std::vector<std::string>& names,
                              const std::string& where) const {
  const std::vector<std::string> known = known_names(rules_);
  for (std::size_t d = 0; d < names.size(); ++d) {
    if (names[d] == kNameless || std::ranges::find(known, names[d]) != known.end()) continue;
    fail(
        {.op = kKind,
         .where = text(where, where.empty() ? "" : " ", "dim ", d),
         .what = text("\"", names[d], "\" is no logical axis"),
         .remedy = known.empty() ? "add rules" : "use one of: " + join(known) + ", or add a rule"});
  }
}

SpecDecision LogicalAxes::assign(const std::vector<std::string>& names) const {
  std::vector<DimSpec> dims(names.size());
  std::vector<bool> assigned(names.size());
  std::set<std::string> used;
  for (const LogicalRule& rule : rules_) {
    for (std::size_t d = 0; d < names.size(); ++d) {
      if (names[d] != rule.name || assigned[d]) continue;
      if (std::ranges::any_of(rule.axes, [&](const auto& axis) { return used.contains(axis); }))
        continue;
      dims[d] = rule.axes;
      assigned[d] = true;
      used.insert(rule.axes.begin(), rule.axes.end());
    }
  }
  SpecDecision decision;
  for (std::size_t d = 0; d < names.size(); ++d) {
    if (assigned[d] || names[d] == kNameless) continue;
    add_note(decision.note, names[d] + " is whole: its axes are taken");
  }
  decision.spec = PartitionSpec::from(std::move(dims));
  return decision;
}

PartitionSpec LogicalAxes::spec(const std::vector<std::string>& names) const {
  check_names(names, "");
  return assign(names).spec;
}

const std::vector<std::string>* LogicalAxes::names_of(const Leaf& leaf) const {
  if (!leaf.names.empty()) return &leaf.names;
  for (std::size_t n = 0; n < compiled_.size(); ++n) {
    if (search_pattern(compiled_[n], leaf.path, kKind, names_[n].pattern)) return &names_[n].names;
  }
  return nullptr;
}

std::vector<int> LogicalAxes::fires(const Leaf& leaf) const {
  return names_of(leaf) == nullptr ? std::vector<int>{} : std::vector<int>{0};
}

SpecDecision LogicalAxes::decide(const Leaf& leaf, int) const {
  const std::vector<std::string>& names = *names_of(leaf);
  check_names(names, leaf.path);
  if (names.size() > leaf.shape.size()) {
    fail({.op = kKind,
          .where = leaf.path,
          .what =
              text("has ", leaf.shape.size(), " dims and ", names.size(), " names: ", join(names)),
          .remedy = "name each dim once"});
  }
  return assign(names);
}

std::vector<std::string> LogicalAxes::unused_entries(const std::vector<Leaf>& leaves) const {
  std::vector<std::string> unused;
  for (std::size_t n = 0; n < names_.size(); ++n) {
    const bool used = std::ranges::any_of(leaves, [&](const Leaf& leaf) {
      return leaf.names.empty() && names_of(leaf) == &names_[n].names;
    });
    if (!used) unused.push_back(names_[n].pattern);
  }
  return unused;
}

std::string LogicalAxes::to_string() const {
  std::vector<std::string> parts;
  for (const LogicalRule& rule : rules_) parts.push_back(rule.name + ": " + axes_text(rule.axes));
  return join(parts, "; ");
}

}  // namespace meshtorch
