// SPDX-License-Identifier: Apache-2.0
#include "sabotage.h"

#include <algorithm>
#include <functional>
#include <map>
#include <ostream>
#include <sstream>

#include <meshtorch/base/error.h>
#include <meshtorch/tensor/runtime.h>

#include "discovery.h"
#include "isolated.h"
#include "runner.h"

namespace meshtorch::conformance {
namespace {

using Edit = std::function<void(OpRule&)>;

struct Mutation {
  std::string what;
  Edit edit;
  bool equivalent = false;
};

bool sums(const at::Tensor& x) { return x.defined() && (x.is_floating_point() || x.is_complex()); }

class Mutations {
 public:
  Mutations(const Case& of, const OpRule& rule, const Discovery& discovery)
      : instance_(of, discovery.sizes),
        rule_(rule),
        discovery_(discovery),
        values_(instance_.values(1)) {}

  std::vector<Mutation> all() {
    for (std::size_t i = 0; i < rule_.operands.size(); ++i) {
      if (!rule_.operands[i]) continue;
      for (std::size_t d = 0; d < rule_.operands[i]->size(); ++d) free_dim(i, d);
      if (sums(values_[i]) && !rule_.each[i] && !rule_.joint[i]) {
        add(
            text(instance_.name(i), " is linear"), [i](OpRule& rule) { rule.each[i] = true; },
            discovery_.linear[i]);
      }
    }
    for (std::size_t o = 0; o < rule_.outputs.size(); ++o) {
      for (std::size_t d = 0; d < rule_.outputs[o].size(); ++d) claim_whole(o, d);
      claim_complete(o);
    }
    return std::move(found_);
  }

 private:
  void add(std::string what, Edit edit, bool equivalent) {
    found_.push_back({std::move(what), std::move(edit), equivalent});
  }

  const Factor& factor(int f) const { return rule_.factors[static_cast<std::size_t>(f)]; }

  // The letter that leads this dim, if any.
  char letter_of(std::size_t i, std::size_t d) const {
    const std::string leading = instance_.operand(i)->dims[d].product()[0];
    return leading.size() == 1 && std::isalpha(static_cast<unsigned char>(leading[0])) ? leading[0]
                                                                                       : '\0';
  }

  // Only dims that a letter leads: of others plain libtorch cannot tell.
  void free_dim(std::size_t i, std::size_t d) {
    const DimFactors& factors = (*rule_.operands[i])[d];
    const char letter = letter_of(i, d);
    if (factors.size() != 1 || !factor(factors[0]).whole || letter == '\0') return;
    const auto dims = dims_of(instance_, letter);
    // Where other operands share the loop, cutting this one alone fails by itself: not worth a try.
    if (dims.size() != 1) return;
    const auto local = discovery_.local.find(letter);
    const std::int64_t size = values_[i].size(static_cast<std::int64_t>(d));
    const std::string name = text(instance_.name(i), " dim ", d);
    const bool through = local != discovery_.local.end() && all_start_with(local->second, "cat");
    const bool contracts = local != discovery_.local.end() && all_start_with(local->second, "sum");
    add(
        name + " is sharded through", [=](OpRule& rule) { free_factor(rule, i, d, size, true); },
        through);
    add(
        name + " contracts", [=](OpRule& rule) { free_factor(rule, i, d, size, false); },
        contracts);
  }

  static bool all_start_with(const std::vector<std::string>& ways, const std::string& start) {
    return std::all_of(ways.begin(), ways.end(),
                       [&](const std::string& way) { return way.starts_with(start); });
  }

  static void free_factor(OpRule& rule, std::size_t i, std::size_t d, std::int64_t, bool through) {
    if (i >= rule.operands.size() || !rule.operands[i] || d >= rule.operands[i]->size()) return;
    DimFactors& dim = (*rule.operands[i])[d];
    if (dim.size() != 1 || !rule.factors[static_cast<std::size_t>(dim[0])].whole) return;
    const int f = dim[0];
    rule.factors[static_cast<std::size_t>(f)].whole = false;
    rule.factors[static_cast<std::size_t>(f)].name = "!";
    if (!through) return;
    for (OperandFactors& output : rule.outputs) {
      if (output.size() != rule.operands[i]->size() || output[d].size() != 1) continue;
      if (rule.factors[static_cast<std::size_t>(output[d][0])].whole) output[d] = {f};
    }
  }

  bool in_operands(int f) const {
    for (const auto& operand : rule_.operands) {
      if (!operand) continue;
      for (const DimFactors& dim : *operand) {
        if (std::find(dim.begin(), dim.end(), f) != dim.end()) return true;
      }
    }
    return false;
  }

  bool is_host(std::size_t o) const {
    return std::find(rule_.host_outputs.begin(), rule_.host_outputs.end(), static_cast<int>(o)) !=
           rule_.host_outputs.end();
  }

  void claim_whole(std::size_t o, std::size_t d) {
    const DimFactors& factors = rule_.outputs[o][d];
    if (factors.size() != 1 || factor(factors[0]).whole || !in_operands(factors[0]) || is_host(o))
      return;
    add(
        text("output ", o, " dim ", d, " is whole"),
        [o, d](OpRule& rule) {
          if (o >= rule.outputs.size() || d >= rule.outputs[o].size()) return;
          rule.factors.push_back({"*", -1, true, false});
          rule.outputs[o][d] = {static_cast<int>(rule.factors.size()) - 1};
        },
        false);
  }

  // Equivalent where every factor that contracts leaves this output as it is.
  void claim_complete(std::size_t o) {
    if ((o < rule_.reduced.size() && rule_.reduced[o]) || is_host(o)) return;
    bool contracts = false;
    bool differs = false;
    for (const auto& [letter, ways] : discovery_.local) {
      if (ways.size() != rule_.outputs.size()) continue;
      contracts |= ways[o] == "sum";
      differs |= ways[o] == "sum";
    }
    if (!contracts) return;
    add(
        text("output ", o, " is complete"),
        [o](OpRule& rule) {
          rule.reduced.resize(rule.outputs.size());
          if (o < rule.reduced.size()) rule.reduced[o] = true;
        },
        !differs);
  }

  const Instance instance_;
  const OpRule& rule_;
  const Discovery& discovery_;
  const Tensors values_;
  std::vector<Mutation> found_;
};

OpRegistry with_edit(const OpRegistry& registry, const std::string& op, const Edit& edit) {
  OpRegistry changed;
  for (OpEntry entry : registry.entries()) {
    if (entry.name == op) {
      entry.rule = [rule = entry.rule, edit](const OpCall& call) {
        OpRule bound = rule(call);
        edit(bound);
        return bound;
      };
    }
    changed.add(std::move(entry));
  }
  return changed;
}

// A crash counts as detected.
bool detects(const Case& of, const Edit& edit) {
  const auto [lines, problem] = isolated_lines(
      [&]() -> std::vector<std::string> {
        OpRegistry& rules = Runtime::current().rules();
        rules = with_edit(rules, of.base(), edit);
        std::ostringstream silent;
        return {
            text(Runner(silent, {.limit = 12, .quick = true, .derived = false}).run(of).failed)};
      },
      60);
  return !problem.empty() || lines.at(0) != "0";
}

std::vector<std::string> sabotage(const Case& of) {
  std::vector<std::string> lines;
  const auto rule_at = [&](const Discovery& discovery) {
    const Instance instance(of, discovery.sizes);
    return bound_rule(instance, instance.values(1));
  };
  const auto rule = rule_at(discover(of, nullptr));
  if (!rule) return lines;
  const Discovery discovery = discover(of, &*rule);
  for (const Mutation& mutation : Mutations(of, *rule, discovery).all()) {
    const char* verdict = mutation.equivalent          ? "equivalent"
                          : detects(of, mutation.edit) ? "detected"
                                                       : "survived";
    lines.push_back(text(verdict, " ", mutation.what));
  }
  return lines;
}

}  // namespace

SabotageTally run_sabotage(const std::vector<Case>& cases, std::size_t every, bool verbose,
                           std::ostream& out) {
  // Of each op the case with the most loops.
  std::map<std::string, const Case*> chosen;
  for (const Case& each : cases) {
    if (each.gathers || each.compare != Compare::values) continue;
    const Case*& mine = chosen[each.op];
    if (mine == nullptr || each.letters.size() > mine->letters.size()) mine = &each;
  }
  SabotageTally tally;
  std::size_t index = 0;
  for (const auto& [op, of] : chosen) {
    if (index++ % every != 0) continue;
    const auto [lines, problem] = isolated_lines([&] { return sabotage(*of); }, 600);
    if (!problem.empty())
      fail({"conformance", of->where, problem, "run it alone: --sabotage --line " + of->where});
    for (const std::string& line : lines) {
      tally.detected += line.starts_with("detected");
      tally.equivalent += line.starts_with("equivalent");
      const bool survived = line.starts_with("survived");
      tally.survived += survived;
      if (survived || verbose) out << of->where << " " << op << ": " << line << "\n";
    }
  }
  return tally;
}

}  // namespace meshtorch::conformance
