// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/tree/rules.h>

#include <meshtorch/base/error.h>
#include <meshtorch/base/table.h>

namespace meshtorch {
namespace {

bool adds(const Rule& rule) { return std::holds_alternative<FsdpRule>(rule); }

std::string heads_text(const Heads& heads) {
  if (heads.count == 0) return "";
  return text(", ", heads.count, " heads", heads.dim == 0 ? "" : text(" in dim ", heads.dim));
}

// The text of a rule set, with a number before each rule.
class Lines {
 public:
  void operator()(const PathRules& rules) {
    for (const PathRule& rule : rules.rules()) {
      number(text("\"", rule.pattern, "\": ", rule.spec, heads_text(rule.heads)));
    }
    if (rules.unmatched() == Unmatched::replicate) out_ += "all else: P()\n";
  }
  void operator()(const LogicalAxes& rules) {
    number(text(LogicalAxes::kKind, ": ", rules.to_string()));
    for (const LogicalName& name : rules.names()) {
      out_ += text("  \"", name.pattern, "\": ", join(name.names), "\n");
    }
  }
  void operator()(const PolicyRule& rule) { number(rule.rule_names()[0]); }
  void operator()(const SpecTable& table) {
    number(table.rule_names()[0]);
    for (const auto& [path, entry] : table.entries()) {
      out_ += text("  ", path, ": ", entry.spec, heads_text(entry.heads),
                   entry.note.empty() ? "" : ", " + entry.note, "\n");
    }
  }
  void operator()(const FsdpRule& rule) {
    number(text(rule.name(), ": ", with_commas(rule.options().min_size), " elements and more"));
  }

  const std::string& text_so_far() const { return out_; }

 private:
  void number(const std::string& line) { out_ += text("rule ", next_++, " ", line, "\n"); }

  std::string out_;
  int next_ = 0;
};

}  // namespace

Rules::Rules(std::vector<Rule> rules) : rules_(std::move(rules)) {
  for (std::size_t r = 1; r < rules_.size(); ++r) {
    if (adds(rules_[r]) || !adds(rules_[r - 1])) continue;
    fail({.op = "Rules",
          .where = std::visit([](const auto& rule) { return rule.kKind; }, rules_[r]),
          .what = text("comes after ", std::get<FsdpRule>(rules_[r - 1]).name(),
                       ", which adds to what rules before it decide"),
          .remedy = "put each FsdpRule last"});
  }
}

Rules Rules::otherwise(Unmatched unmatched) const {
  Rules rules = *this;
  rules.unmatched_ = unmatched;
  return rules;
}

Rules Rules::even() const {
  Rules rules = *this;
  rules.even_ = true;
  return rules;
}

std::string Rules::to_string() const {
  Lines lines;
  for (const Rule& rule : rules_) std::visit(lines, rule);
  return text(lines.text_so_far(),
              "unmatched: ", unmatched_ == Unmatched::error ? "an error" : "P()",
              even_ ? "; uneven: an error" : "", "\n");
}

}  // namespace meshtorch
