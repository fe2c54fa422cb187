// SPDX-License-Identifier: Apache-2.0
#include "page.h"

#include <algorithm>
#include <set>

#include <meshtorch/base/error.h>
#include <meshtorch/tensor/runtime.h>

#include "derived.h"
#include "discovery.h"
#include "isolated.h"

namespace meshtorch::conformance {
namespace {

struct Counts {
  std::size_t names = 0, overloads = 0, in_place = 0, out = 0, lists = 0;
};

Counts count(const OpRegistry& registry) {
  Counts counts;
  std::set<std::string> names;
  for (const OpEntry& entry : registry.entries()) {
    const std::size_t dot = entry.name.find('.');
    const std::string overload = dot == std::string::npos ? "" : entry.name.substr(dot + 1);
    const auto handle =
        c10::Dispatcher::singleton().findSchema({entry.name.substr(0, dot), overload});
    if (!handle)
      fail({entry.name, "", "has a rule, but libtorch has no such op", "take the rule out"});
    names.insert(entry.name.substr(0, dot));
    ++counts.overloads;
    for (const DerivedOp& op : derived_ops(*handle)) {
      counts.in_place += op.form == DerivedOp::Form::in_place;
      counts.out += op.form == DerivedOp::Form::out;
      counts.lists += op.form == DerivedOp::Form::list || op.form == DerivedOp::Form::list_in_place;
    }
  }
  counts.names = names.size();
  return counts;
}

}  // namespace

std::vector<std::string> ops_without_case(const std::vector<Case>& cases) {
  // What no line can call, and where it is proven instead.
  std::set<std::string> covered{
      "aten::linear_backward",  // plain libtorch has none on a CPU: kernels/linear_test.cpp
      "aten::mkldnn_rnn_layer_backward",  // takes bytes of its forward: parity of LSTM modules
  };
  for (const Case& each : cases) covered.insert(each.base());
  std::vector<std::string> missing;
  for (const OpEntry& entry : Runtime::current().rules().entries()) {
    if (!covered.count(entry.name)) missing.push_back(entry.name);
  }
  return missing;
}

std::map<std::string, std::vector<std::string>> all_missed(const std::vector<Case>& cases) {
  std::map<std::string, std::vector<std::string>> found;
  for (const Case& each : cases) {
    const auto [lines, problem] = isolated_lines([&] { return missed(each); }, 60);
    if (!problem.empty())
      fail({"conformance", each.where, problem, "run it alone: --line " + each.where});
    auto& mine = found[each.op];
    for (const std::string& line : lines) {
      if (std::find(mine.begin(), mine.end(), line) == mine.end()) mine.push_back(line);
    }
  }
  std::erase_if(found, [](const auto& entry) { return entry.second.empty(); });
  return found;
}

std::string coverage_page(const std::vector<Case>& cases) {
  const OpRegistry& registry = Runtime::current().rules();
  const Counts counts = count(registry);
  std::string page = text(
      "# Coverage: ops with a rule\n\n"
      "Written by `script/coverage`; do not edit. ",
      counts.names, " ops in ", counts.overloads,
      " overloads have a rule of their own, a section a family,\nin the [notation](rule.md) of "
      "their rules; ",
      counts.in_place, " in-place, ", counts.out, " `out=` and ", counts.lists,
      " `_foreach_` forms derive from them.\nComposite ops (`linear`, `cross_entropy`) are made of "
      "these. Every other op gives the right "
      "result too: its operands\nare gathered, and `Runtime::fallbacks()` tells. ",
      cases.size(), " [cases](conformance.md) prove the rules.\n\n", coverage_table(registry));
  page +=
      "\n## Gathers although a local answer exists\n\n"
      "Found by running plain libtorch on the halves of each loop, and on summands of each "
      "operand: the results of the halves\n"
      "make up the whole one as told for each output, or the op is linear in the operand, and the "
      "rule has no way for it.\n\n"
      "| op | dims: outputs |\n|---|---|\n";
  for (const auto& [op, lines] : all_missed(cases))
    page += text("| `", op, "` | ", join(lines, "; "), " |\n");
  return page;
}

}  // namespace meshtorch::conformance
