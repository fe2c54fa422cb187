// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/tree/match_report.h>

#include <meshtorch/base/error.h>
#include <meshtorch/base/table.h>

namespace meshtorch {
namespace {

// "3", "none", "0+4".
std::string rules_of(const Match& match) {
  std::string out = match.rule < 0 ? "none" : std::to_string(match.rule);
  for (const int rule : match.added) out += text("+", rule);
  return out;
}

}  // namespace

std::string MatchReport::rule_text(int rule) const {
  return text("rule ", rule, " ", rules.at(static_cast<std::size_t>(rule)));
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
    table.add({match.leaf.path, "[" + join(match.leaf.shape) + "]", rules_of(match),
               match.spec.to_string(), with_commas(match.bytes_per_device), match.note});
    if (!match.repeated) total += match.bytes_per_device;
  }
  std::string out = table.to_string();
  out += text(matches.size(), " leaves, ", with_commas(total), " bytes per device\n");
  for (const int rule : unused_rules) out += rule_text(rule) + " is unused: it fits no leaf\n";
  for (const int rule : shadowed_rules) {
    out += rule_text(rule) + " is shadowed: an earlier rule wins every leaf it fits\n";
  }
  for (const UnusedEntry& unused : unused_entries) {
    out += text(rule_text(unused.rule), ": \"", unused.entry, "\" is unused: it fits no leaf\n");
  }
  return out;
}

}  // namespace meshtorch
