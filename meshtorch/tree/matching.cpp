// SPDX-License-Identifier: Apache-2.0
//
// Rules::match: one match of a rule set against the leaves of a tree.
#include <algorithm>
#include <map>

#include <meshtorch/base/error.h>
#include <meshtorch/layout/shard.h>
#include <meshtorch/tree/leaf_checks.h>
#include <meshtorch/tree/rules.h>

namespace meshtorch {
namespace {

template <class Kind>
constexpr bool kDecides = !std::same_as<Kind, FsdpRule>;

bool knows_every_leaf(const Rule& rule) {
  const PathRules* paths = std::get_if<PathRules>(&rule);
  return paths != nullptr && paths->unmatched() == Unmatched::replicate;
}

std::vector<std::string> names_of(const Rule& rule) {
  return std::visit(
      []<class Kind>(const Kind& kind) {
        if constexpr (kDecides<Kind>)
          return kind.rule_names();
        else
          return std::vector<std::string>{kind.name()};
      },
      rule);
}

std::vector<std::string> unused_entries(const Rule& rule, const std::vector<Leaf>& leaves) {
  return std::visit(
      [&](const auto& kind) -> std::vector<std::string> {
        if constexpr (requires { kind.unused_entries(leaves); })
          return kind.unused_entries(leaves);
        else
          return {};
      },
      rule);
}

class Matching {
 public:
  Matching(const Rules& rules, const Mesh& mesh, const std::vector<Leaf>& leaves);
  MatchReport report();

 private:
  // Rules are numbered through: each one of a PathRules, one for any other kind.
  struct Place {
    std::size_t part;  // of rules.rules()
    int within;
  };

  std::vector<int> fires(const Leaf& leaf) const;
  std::vector<int> in_time(const std::vector<int>& fired) const;
  void find_deciders();
  bool is_added_to(const Leaf& leaf) const;
  void refuse_unmatched() const;
  void match(std::size_t leaf);
  SpecDecision decision_of(std::size_t leaf) const;
  void check_tie(std::size_t leaf, Match& match);
  void add_axes(const Leaf& leaf, Match& match, Layout& layout);
  void note_others(std::size_t leaf, Match& match) const;
  void find_idle_rules();

  std::string where(const Match& match) const {
    return match.leaf.path + (match.rule < 0 ? "" : " by " + report_.rule_text(match.rule));
  }
  const Rule& part(int rule) const {
    return rules_.rules()[places_[static_cast<std::size_t>(rule)].part];
  }

  const Rules& rules_;
  const Mesh& mesh_;
  const std::vector<Leaf>& leaves_;
  std::string op_;
  std::vector<Place> places_;
  std::vector<int> first_;  // rule of each part
  std::vector<int> adders_;
  std::size_t last_part_;                     // that is asked for a leaf that none before it knows
  std::vector<std::vector<int>> fired_;       // for each leaf, first to last
  std::vector<std::vector<int>> candidates_;  // those of them that are asked in time
  std::vector<std::size_t> decider_;  // the leaf whose rule each takes: itself, or a tied one
  std::vector<Layout> decided_;       // before axes are added
  std::map<int, std::size_t> first_of_tie_;
  std::vector<bool> won_, seen_;
  MatchReport report_;
};

Matching::Matching(const Rules& rules, const Mesh& mesh, const std::vector<Leaf>& leaves)
    : rules_(rules), mesh_(mesh), leaves_(leaves), op_("Rules"), last_part_(rules.rules().size()) {
  const std::vector<Rule>& parts = rules.rules();
  if (parts.size() == 1) op_ = std::visit([](const auto& kind) { return kind.kKind; }, parts[0]);
  for (std::size_t p = 0; p < parts.size(); ++p) {
    int within = 0;
    first_.push_back(static_cast<int>(places_.size()));
    for (std::string& name : names_of(parts[p])) {
      if (std::holds_alternative<FsdpRule>(parts[p])) {
        adders_.push_back(static_cast<int>(places_.size()));
      }
      places_.push_back({p, within++});
      report_.rules.push_back(std::move(name));
    }
    if (knows_every_leaf(parts[p])) last_part_ = std::min(last_part_, p);
  }
  won_.resize(places_.size());
  seen_.resize(places_.size());
}

std::vector<int> Matching::fires(const Leaf& leaf) const {
  std::vector<int> fired;
  for (std::size_t p = 0; p < first_.size(); ++p) {
    std::visit(
        [&]<class Kind>(const Kind& kind) {
          if constexpr (kDecides<Kind>) {
            for (const int within : kind.fires(leaf)) fired.push_back(first_[p] + within);
          }
        },
        rules_.rules()[p]);
  }
  return fired;
}

std::vector<int> Matching::in_time(const std::vector<int>& fired) const {
  std::vector<int> kept;
  std::ranges::copy_if(fired, std::back_inserter(kept), [&](int rule) {
    return places_[static_cast<std::size_t>(rule)].part <= last_part_;
  });
  return kept;
}

// Of tied leaves that no rule fires for, the first for which one does decides.
void Matching::find_deciders() {
  std::map<int, std::size_t> first;
  for (std::size_t i = 0; i < leaves_.size(); ++i) {
    fired_.push_back(fires(leaves_[i]));
    candidates_.push_back(in_time(fired_.back()));
    if (leaves_[i].tie >= 0 && !candidates_[i].empty()) first.emplace(leaves_[i].tie, i);
  }
  for (std::size_t i = 0; i < leaves_.size(); ++i) {
    const auto found = candidates_[i].empty() ? first.find(leaves_[i].tie) : first.end();
    decider_.push_back(found == first.end() ? i : found->second);
  }
}

// Where nothing decides it.
bool Matching::is_added_to(const Leaf& leaf) const {
  const Layout undecided = Layout::replicated(static_cast<std::int64_t>(leaf.shape.size()));
  return std::ranges::any_of(adders_, [&](int rule) {
    return std::get<FsdpRule>(part(rule)).add(mesh_, leaf, undecided).added;
  });
}

// FsdpRules by themselves leave small leaves whole; beside rules that decide, such a leaf may be
// one that a pattern was to fit.
void Matching::refuse_unmatched() const {
  const bool decided = last_part_ < rules_.rules().size();
  const bool by_size = !adders_.empty() && adders_.size() == places_.size();
  if (decided || by_size || rules_.unmatched() == Unmatched::replicate) return;
  std::vector<std::string> paths;
  for (std::size_t i = 0; i < leaves_.size(); ++i) {
    const Leaf& leaf = leaves_[i];
    if (candidates_[decider_[i]].empty() && !leaf.buffer && !is_added_to(leaf))
      paths.push_back(leaf.path);
  }
  if (paths.empty()) return;
  fail({op_, join(paths), "no rule fires",
        "add a rule, or call otherwise(Unmatched::replicate) to leave such leaves whole"});
}

SpecDecision Matching::decision_of(std::size_t leaf) const {
  const std::size_t decider = decider_[leaf];
  if (candidates_[decider].empty()) return {};
  const int rule = candidates_[decider][0];
  return std::visit(
      [&]<class Kind>(const Kind& kind) -> SpecDecision {
        if constexpr (kDecides<Kind>) {
          return kind.decide(leaves_[decider], places_[static_cast<std::size_t>(rule)].within);
        } else {
          return {};
        }
      },
      part(rule));
}

void Matching::check_tie(std::size_t leaf, Match& match) {
  if (match.leaf.tie < 0) return;
  const std::size_t tie = first_of_tie_.emplace(match.leaf.tie, leaf).first->second;
  if (tie == leaf) return;
  const Match& other = report_.matches[tie];
  if (decided_[tie] != decided_[leaf]) {
    fail({op_, where(match),
          text(match.spec, " but ", other.leaf.path, ", the same tensor, gets ",
               to_string(mesh_, decided_[tie]), " by ", report_.rule_text(other.rule)),
          "give both the same spec"});
  }
  match.repeated = true;
  add_note(match.note, "tied to " + other.leaf.path);
}

void Matching::add_axes(const Leaf& leaf, Match& match, Layout& layout) {
  for (const int rule : adders_) {
    const FsdpRule::Addition addition = std::get<FsdpRule>(part(rule)).add(mesh_, leaf, layout);
    add_note(match.note, addition.note);
    if (!addition.added) continue;
    layout = addition.layout;
    match.spec = spec_of(mesh_, layout);
    seen_[static_cast<std::size_t>(rule)] = won_[static_cast<std::size_t>(rule)] = true;
    if (match.rule < 0) {
      match.rule = rule;
    } else {
      match.added.push_back(rule);
    }
  }
}

void Matching::note_others(std::size_t leaf, Match& match) const {
  std::vector<int> others = fired_[decider_[leaf]];
  std::erase(others, match.rule);
  if (!others.empty()) add_note(match.note, "also fits rule " + join(others));
}

void Matching::match(std::size_t i) {
  const Leaf& leaf = leaves_[i];
  const std::vector<int>& candidates = candidates_[decider_[i]];
  const SpecDecision decision = decision_of(i);
  Match match{.leaf = leaf, .rule = candidates.empty() ? -1 : candidates[0], .spec = decision.spec};
  const std::string at = where(match);
  Layout layout = resolve(mesh_, match.spec, static_cast<std::int64_t>(leaf.shape.size()), op_, at);
  decided_.push_back(layout);
  check_tie(i, match);
  refuse_cut_heads(mesh_, leaf, decision.heads, layout, op_, at);
  add_note(match.note, decision.note);
  add_axes(leaf, match, layout);
  if (rules_.is_even()) refuse_uneven(mesh_, leaf, layout, op_, at);
  match.bytes_per_device = max_shard_numel(mesh_, leaf.shape, layout) * leaf.item_size;
  add_note(match.note, uneven_note(mesh_, leaf, layout));
  note_others(i, match);
  if (!candidates_[i].empty()) won_[static_cast<std::size_t>(candidates_[i][0])] = true;
  for (const int rule : fired_[i]) seen_[static_cast<std::size_t>(rule)] = true;
  report_.matches.push_back(std::move(match));
}

void Matching::find_idle_rules() {
  for (std::size_t r = 0; r < places_.size(); ++r) {
    const int rule = static_cast<int>(r);
    if (!seen_[r]) report_.unused_rules.push_back(rule);
    if (seen_[r] && !won_[r]) report_.shadowed_rules.push_back(rule);
    if (!seen_[r] || places_[r].within != 0) continue;
    for (std::string& entry : unused_entries(part(rule), leaves_)) {
      report_.unused_entries.push_back({rule, std::move(entry)});
    }
  }
}

MatchReport Matching::report() {
  find_deciders();
  refuse_unmatched();
  for (std::size_t i = 0; i < leaves_.size(); ++i) match(i);
  find_idle_rules();
  return std::move(report_);
}

}  // namespace

MatchReport Rules::match(const Mesh& mesh, const std::vector<Leaf>& leaves) const {
  return Matching(*this, mesh, leaves).report();
}

}  // namespace meshtorch
