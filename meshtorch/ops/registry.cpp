// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/ops/registry.h>

#include <meshtorch/base/error.h>
#include <meshtorch/ops/families.h>

namespace meshtorch {

OpRegistry OpRegistry::built_in() {
  OpRegistry registry;
  for (const auto& [name, list] : kFamilies) {
    Family family(name, registry);
    list(family);
  }
  return registry;
}

void OpRegistry::add(OpEntry entry) {
  if (!by_name_.try_emplace(entry.name, entries_.size()).second) {
    fail({entry.name, "", text("has a rule already, in family ", find(entry.name)->family),
          "give the op one rule"});
  }
  entries_.push_back(std::move(entry));
  ++revision_;
}

const OpEntry* OpRegistry::find(std::string_view name) const {
  const auto found = by_name_.find(std::string(name));
  return found == by_name_.end() ? nullptr : &entries_[found->second];
}

void Family::add(RuleText text, std::initializer_list<const char*> ops) {
  for (const char* op : ops) {
    const std::string name = std::string("aten::") + op;
    registry_.add({name, name_, std::string(text.view()), [text](const OpCall& call) {
                     return parse_rule(call.name, text, call.operands);
                   }});
  }
}

void Family::add(const char* text, RuleFunction rule, std::initializer_list<const char*> ops) {
  for (const char* op : ops) {
    registry_.add({std::string("aten::") + op, name_, text, rule});
  }
}

namespace {

// "joint(0) each(1)" of a text.
std::string linearity(const std::string& text) {
  const std::size_t semicolon = text.find(';');
  if (semicolon == std::string::npos) return "";
  const std::size_t first = text.find_first_not_of(' ', semicolon + 1);
  return first == std::string::npos ? "" : text.substr(first);
}

}  // namespace

std::string coverage_table(const OpRegistry& registry) {
  std::string out;
  std::string family;
  for (const OpEntry& entry : registry.entries()) {
    if (entry.family != family) {
      family = entry.family;
      out += text(out.empty() ? "" : "\n", "## ", family,
                  "\n\n| op | rule | linear |\n|---|---|---|\n");
    }
    const std::string linear = linearity(entry.text);
    out += text("| `", entry.name.substr(6), "` | `", entry.text.substr(0, entry.text.find(';')),
                "` | ", linear, linear.empty() ? "|\n" : " |\n");
  }
  return out;
}

}  // namespace meshtorch
