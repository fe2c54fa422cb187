// SPDX-License-Identifier: Apache-2.0
#include "sabotage.h"

#include <algorithm>
#include <functional>
#include <map>
#include <ostream>
#include <set>
#include <sstream>

#include <meshtorch/base/error.h>
#include <meshtorch/rule/propagate.h>
#include <meshtorch/tensor/dispatch.h>
#include <meshtorch/tensor/runtime.h>

#include "discovery.h"
#include "isolated.h"
#include "runner.h"

namespace meshtorch::conformance {
namespace {

constexpr std::size_t kLimit = 12;  // placings of one call

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
    if (instance_.of().handle.schema().returns().empty()) return {};  // nothing can be wrong
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
    const std::string name = text(instance_.name(i), " dim ", d);
    for (const bool through : {true, false}) {
      const Edit edit = [=](OpRule& rule) { free_factor(rule, i, d, through); };
      OpRule changed = rule_;
      edit(changed);
      add(name + (through ? " is sharded through" : " contracts"), edit,
          local != discovery_.local.end() &&
              agrees(changed, (*changed.operands[i])[d][0], local->second));
    }
  }

  // The rule says of each output what halving the factor's loop shows.
  static bool agrees(const OpRule& rule, int f, const std::vector<std::string>& ways) {
    if (ways.size() != rule.outputs.size()) return false;
    for (std::size_t o = 0; o < ways.size(); ++o) {
      if (ways[o] == "nothing") continue;
      std::vector<std::string> right = {"sum", "or"};
      if ((o < rule.reduced.size() && rule.reduced[o]) || is_host(rule, o)) right = {"same"};
      for (std::size_t d = 0; d < rule.outputs[o].size(); ++d) {
        if (rule.outputs[o][d] == DimFactors{f}) right = {text("cat ", d)};
      }
      if (std::find(right.begin(), right.end(), ways[o]) == right.end()) return false;
    }
    return true;
  }

  static void free_factor(OpRule& rule, std::size_t i, std::size_t d, bool through) {
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

  static bool is_host(const OpRule& rule, std::size_t o) {
    return std::find(rule.host_outputs.begin(), rule.host_outputs.end(), static_cast<int>(o)) !=
           rule.host_outputs.end();
  }

  void claim_whole(std::size_t o, std::size_t d) {
    const DimFactors& factors = rule_.outputs[o][d];
    if (factors.size() != 1 || factor(factors[0]).whole || !in_operands(factors[0]) ||
        is_host(rule_, o))
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

  // Where some loop's halves add up.
  void claim_complete(std::size_t o) {
    if ((o < rule_.reduced.size() && rule_.reduced[o]) || is_host(rule_, o)) return;
    bool sums_up = false;
    for (const auto& [letter, ways] : discovery_.local)
      sums_up |= ways.size() == rule_.outputs.size() && ways[o] == "sum";
    if (!sums_up) return;
    add(
        text("output ", o, " is complete"),
        [o](OpRule& rule) {
          rule.reduced.resize(rule.outputs.size());
          if (o < rule.reduced.size()) rule.reduced[o] = true;
        },
        false);
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

// Failures under a changed rule, in a process of its own: decisions are kept.
std::string failures(const Case& of, const Edit& edit, const RunOptions& options) {
  const auto [lines, problem] = isolated_lines(
      [&]() -> std::vector<std::string> {
        OpRegistry& rules = Runtime::current().rules();
        rules = with_edit(rules, of.base(), edit);
        std::ostringstream silent;
        return {text(Runner(silent, options).run(of).failed)};
      },
      60);
  return problem.empty() ? lines.at(0) : problem;
}

std::vector<std::optional<Operand>> operands_of(const Tensors& values, const Placing& placing) {
  std::vector<std::optional<Operand>> operands;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!values[i].defined()) {
      operands.emplace_back();
    } else {
      operands.push_back(Operand{values[i].sizes().vec(), placing[i].layout,
                                 static_cast<std::int64_t>(values[i].element_size())});
    }
  }
  return operands;
}

// The changed rule leads to other layouts somewhere: one that is never cheaper changes nothing.
bool matters(const Case& of, const Edit& edit) {
  for (const std::int64_t devices : {2, 3}) {
    const Mesh mesh({{"x", devices}});
    for (const Regime& regime : regimes(of, mesh)) {
      const Instance instance(of, regime.sizes);
      if (!instance.possible() || regime.name.starts_with("zero")) continue;  // no element differs
      const Tensors values = instance.values(1);
      const auto rule = bound_rule(instance, values);
      OpRule changed = *rule;
      edit(changed);
      std::vector<Placing> always;
      for (const Consistent& own : consistent_placings(changed, mesh, values))
        always.push_back(own.placing);
      for (const Placing& placing : placings(values, mesh, always, kLimit, 1)) {
        const auto operands = operands_of(values, placing);
        const auto before = propagate(*rule, mesh, operands),
                   after = propagate(changed, mesh, operands);
        if (before->operands != after->operands || before->outputs != after->outputs) return true;
      }
    }
  }
  return false;
}

// The quick run finds nearly all; what it does not, the whole one has to.
bool detected(const Case& of, const Edit& edit) {
  return failures(of, edit, {.limit = kLimit, .quick = true, .derived = false}) != "0" ||
         failures(of, edit, {.derived = false}) != "0";
}

// What no values can show: a summand is infinite or not a number exactly where the sum is.
bool is_shown_by_no_values(const std::string& op) {
  static const std::set<std::string> ops{"isinf", "isnan", "isneginf", "isposinf"};
  return ops.count(op) > 0;
}

// A kernel of the op's own may well sum over the factor itself.
bool has_own_kernel(const Case& of) {
  const Dispatch& dispatch = Runtime::current().dispatch();
  return dispatch.find_kernel(of.base()) != nullptr || dispatch.find_override(of.base()) != nullptr;
}

// "detected self is linear", and so on: of each change the best verdict of any case of the op.
std::vector<std::string> sabotage(const std::vector<const Case*>& cases) {
  std::map<std::string, std::string> verdicts;
  for (const Case* of : cases) {
    const Discovery first = discover(*of, nullptr);
    const Instance instance(*of, first.sizes);
    const auto rule = bound_rule(instance, instance.values(1));
    if (!rule) continue;
    const Discovery discovery = discover(*of, &*rule);
    if (detected(*of, [](OpRule&) {})) return {"survived all: " + of->where + " fails unchanged"};
    for (const Mutation& mutation : Mutations(*of, *rule, discovery).all()) {
      std::string& verdict = verdicts[mutation.what];
      if (verdict == "detected") continue;
      if (mutation.equivalent || !matters(*of, mutation.edit)) {
        if (verdict.empty()) verdict = "equivalent";
      } else {
        verdict = detected(*of, mutation.edit) ? "detected" : "survived";
      }
    }
  }
  const Case& any = *cases.front();
  std::vector<std::string> lines;
  for (auto& [what, verdict] : verdicts) {
    const bool excused = has_own_kernel(any) || is_shown_by_no_values(any.op);
    lines.push_back((verdict == "survived" && excused ? "equivalent" : verdict) + " " + what);
  }
  return lines;
}

}  // namespace

SabotageTally run_sabotage(const std::vector<Case>& cases, std::size_t every, bool verbose,
                           std::ostream& out) {
  std::map<std::string, std::vector<const Case*>> by_op;
  for (const Case& each : cases) {
    if (!each.gathers && each.compare == Compare::values) by_op[each.op].push_back(&each);
  }
  SabotageTally tally;
  std::size_t index = 0;
  for (auto& [op, mine] : by_op) {
    if (index++ % every != 0) continue;
    // Those with the most loops show the most.
    std::stable_sort(mine.begin(), mine.end(),
                     [](auto* a, auto* b) { return a->letters.size() > b->letters.size(); });
    const auto [lines, problem] = isolated_lines([&] { return sabotage(mine); }, 600);
    if (!problem.empty()) fail({"conformance", op, problem, "run it alone: --sabotage --op " + op});
    for (const std::string& line : lines) {
      tally.detected += line.starts_with("detected");
      tally.equivalent += line.starts_with("equivalent");
      const bool survived = line.starts_with("survived");
      tally.survived += survived;
      if (survived || verbose) out << op << ": " << line << "\n";
    }
  }
  return tally;
}

}  // namespace meshtorch::conformance
