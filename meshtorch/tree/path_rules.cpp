// SPDX-License-Identifier: Apache-2.0
#include <map>

#include <meshtorch/base/error.h>
#include <meshtorch/base/table.h>
#include <meshtorch/layout/shard.h>
#include <meshtorch/tree/path_rules.h>
#include <meshtorch/tree/pattern.h>

namespace meshtorch {
namespace {

std::string rule_text(const std::vector<PathRule>& rules, int rule) {
  return text("rule ", rule, " \"", rules[static_cast<std::size_t>(rule)].pattern, "\"");
}

// "tp=2", "(fsdp=2, tp=4)".
std::string axes_text(const Mesh& mesh, AxisList axes) {
  std::vector<std::string> parts;
  for (int i = 0; i < axes.size(); ++i) {
    parts.push_back(text(mesh.axes()[axes[i]].name, "=", mesh.axis_size(axes[i])));
  }
  return parts.size() == 1 ? parts[0] : "(" + join(parts) + ")";
}

void add_note(std::string& note, const std::string& more) {
  note += (note.empty() ? "" : "; ") + more;
}

void add_uneven_notes(const Mesh& mesh, const Shape& shape, const Layout& layout,
                      std::string& note) {
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const AxisList axes = layout.dims[d];
    if (axes.empty() || shape[d] % mesh.shards(axes) == 0) continue;
    int empty = 0;
    for (const std::int64_t position : mesh.group(0, axes)) {
      empty += shard_interval(mesh, shape[d], axes, position).size() == 0;
    }
    add_note(note, text("uneven: dim ", d, " of ", shape[d], " over ", axes_text(mesh, axes)));
    if (empty > 0) note += text(", ", empty, " empty");
  }
}

// The rules that fire for each leaf, first to last.
std::vector<std::vector<int>> fire(const std::vector<std::regex>& patterns,
                                   const std::vector<Leaf>& leaves) {
  std::vector<std::vector<int>> fired(leaves.size());
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    for (std::size_t r = 0; r < patterns.size(); ++r) {
      if (std::regex_search(leaves[i].path, patterns[r])) fired[i].push_back(static_cast<int>(r));
    }
  }
  return fired;
}

// For each leaf the leaf whose rule it takes: itself, or the first of its ties that a rule fires
// for.
std::vector<std::size_t> deciders(const std::vector<Leaf>& leaves,
                                  const std::vector<std::vector<int>>& fired) {
  std::map<int, std::size_t> first;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    if (leaves[i].tie >= 0 && !fired[i].empty()) first.emplace(leaves[i].tie, i);
  }
  std::vector<std::size_t> decider(leaves.size());
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const auto found = leaves[i].tie >= 0 ? first.find(leaves[i].tie) : first.end();
    decider[i] = found == first.end() ? i : found->second;
  }
  return decider;
}

void refuse_unmatched(const std::vector<Leaf>& leaves, const std::vector<std::vector<int>>& fired,
                      const std::vector<std::size_t>& decider) {
  std::vector<std::string> paths;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    if (fired[decider[i]].empty()) paths.push_back(leaves[i].path);
  }
  if (paths.empty()) return;
  fail({"PathRules", join(paths), "no rule fires",
        "add a rule, or call otherwise(Unmatched::replicate) to leave such leaves whole"});
}

}  // namespace

PathRules::PathRules(std::initializer_list<PathRule> rules)
    : PathRules(std::vector<PathRule>(rules)) {}

PathRules::PathRules(std::vector<PathRule> rules) : rules_(std::move(rules)) {
  for (std::size_t r = 0; r < rules_.size(); ++r) {
    compiled_.push_back(compile_pattern(rules_[r].pattern, "PathRules",
                                        rule_text(rules_, static_cast<int>(r))));
  }
}

PathRules PathRules::otherwise(Unmatched unmatched) const {
  PathRules rules = *this;
  rules.unmatched_ = unmatched;
  return rules;
}

MatchReport PathRules::match(const Mesh& mesh, const std::vector<Leaf>& leaves) const {
  const auto fired = fire(compiled_, leaves);
  const auto decider = deciders(leaves, fired);
  if (unmatched_ == Unmatched::error) refuse_unmatched(leaves, fired, decider);

  MatchReport report{.rules = rules_};
  std::vector<bool> won(rules_.size());
  std::vector<bool> seen(rules_.size());
  std::vector<Layout> layouts;
  std::map<int, std::size_t> first_of_tie;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const Leaf& leaf = leaves[i];
    const std::vector<int>& rules = fired[fired[i].empty() ? decider[i] : i];
    Match match{.leaf = leaf};
    std::string where = leaf.path;
    if (!rules.empty()) {
      match.rule = rules[0];
      match.spec = rules_[static_cast<std::size_t>(match.rule)].spec;
      where += " by " + rule_text(rules_, match.rule);
    }
    const auto rank = static_cast<std::int64_t>(leaf.shape.size());
    const Layout layout = resolve(mesh, match.spec, rank, "PathRules", where);
    layouts.push_back(layout);
    const auto tie = leaf.tie >= 0 ? first_of_tie.emplace(leaf.tie, i).first->second : i;
    if (tie != i) {
      if (layouts[tie] != layout) {
        fail({"PathRules", where,
              text(match.spec, " but ", leaves[tie].path, ", the same tensor, gets ",
                   report.matches[tie].spec, " by ", rule_text(rules_, report.matches[tie].rule)),
              "give both the same spec"});
      }
      add_note(match.note, "tied to " + leaves[tie].path);
    }
    match.bytes_per_device = max_shard_numel(mesh, leaf.shape, layout) * leaf.item_size;
    add_uneven_notes(mesh, leaf.shape, layout, match.note);
    if (rules.size() > 1) {
      add_note(match.note,
               "also fits rule " + join(std::vector<int>(rules.begin() + 1, rules.end())));
    }
    if (!fired[i].empty()) won[static_cast<std::size_t>(fired[i][0])] = true;
    for (const int rule : fired[i]) seen[static_cast<std::size_t>(rule)] = true;
    report.matches.push_back(std::move(match));
  }
  for (std::size_t r = 0; r < rules_.size(); ++r) {
    if (!seen[r]) report.unused_rules.push_back(static_cast<int>(r));
    if (seen[r] && !won[r]) report.shadowed_rules.push_back(static_cast<int>(r));
  }
  return report;
}

std::string MatchReport::to_string() const {
  Table table({{"path"},
               {"shape"},
               {"rule", Align::right},
               {"spec"},
               {"bytes per device", Align::right},
               {"note"}});
  std::int64_t total = 0;
  for (const Match& match : matches) {
    table.add({match.leaf.path, "[" + join(match.leaf.shape) + "]",
               match.rule < 0 ? "none" : std::to_string(match.rule), match.spec.to_string(),
               with_commas(match.bytes_per_device), match.note});
    if (!match.note.starts_with("tied to ")) total += match.bytes_per_device;
  }
  std::string out = table.to_string();
  out += text(matches.size(), " leaves, ", with_commas(total), " bytes per device\n");
  for (const int rule : unused_rules) {
    out += rule_text(rules, rule) + " is unused: it fits no leaf\n";
  }
  for (const int rule : shadowed_rules) {
    out += rule_text(rules, rule) + " is shadowed: an earlier rule wins every leaf it fits\n";
  }
  return out;
}

}  // namespace meshtorch
