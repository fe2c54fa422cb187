// SPDX-License-Identifier: Apache-2.0
#include "meta.h"

#include <ATen/ATen.h>

#include <meshtorch/base/error.h>
#include <meshtorch/comm/meta.h>
#include <meshtorch/tensor/meta.h>
#include <meshtorch/tensor/op_info.h>
#include <meshtorch/tensor/runtime.h>
#include <meshtorch/tensor/sharded.h>
#include <meshtorch/tensor/sharding.h>

namespace meshtorch::conformance {
namespace {

at::Tensor stripped(const at::Tensor& x) {
  const ShardedView* view = sharded_view(x);
  // A call may make a plain tensor that it writes a sharded one.
  if (view == nullptr) return x.detach().clone().requires_grad_(x.requires_grad());
  at::Tensor meta = wrap(view->mesh(), x.sizes().vec(), view->layout(),
                         meshtorch::without_values(view->locals()));
  return meta.requires_grad_(x.requires_grad());
}

std::string describe(const LedgerEntry& entry) {
  return text(name(entry.kind), " ", entry.axes, " ", entry.bytes, " x", entry.tensors, " ",
              entry.op, " ", name(entry.origin));
}

std::string describe(const std::vector<LedgerEntry>& entries) {
  std::vector<std::string> parts;
  for (const LedgerEntry& entry : entries) parts.push_back(describe(entry));
  return "{" + join(parts, "; ") + "}";
}

std::string describe(const at::Tensor& x) {
  if (!x.defined()) return "undefined";
  std::string result = text(x.scalar_type(), " (", join(x.sizes()), ")");
  if (!is_sharded(x)) return result + " plain";
  result += " " + meshtorch::describe(x);
  for (const at::Tensor& local : sharded_view(x)->locals())
    result += text(" [", join(local.sizes()), "]");
  return result;
}

bool needs_values(const c10::OperatorHandle& op) { return analyse(op).needs_values; }

}  // namespace

Tensors without_values(const Tensors& operands) {
  Tensors results;
  for (const at::Tensor& x : operands) results.push_back(x.defined() ? stripped(x) : x);
  return results;
}

std::vector<std::string> check_meta(const Scene& scene, const Tensors& operands,
                                    const Tensors& real_outputs,
                                    const std::vector<LedgerEntry>& real_ledger) {
  const auto& op = scene.instance.of().handle;
  Ledger& ledger = Runtime::current().ledger();
  ledger.clear();
  Tensors outputs;
  try {
    outputs = call(op, scene.instance.stack(operands));
  } catch (const std::exception& error) {
    const std::string message = error.what();
    if (needs_values(op) && message.find("there are none in a meta run") != std::string::npos)
      return {};
    return {"without values throws: " + message.substr(0, 600)};
  }
  std::vector<std::string> problems;
  for (std::size_t o = 0; o < real_outputs.size(); ++o) {
    const std::string got = describe(outputs.at(o)), wanted = describe(real_outputs[o]);
    if (got != wanted)
      problems.push_back(text("output ", o, " without values is ", got, ", with them ", wanted));
    if (outputs.at(o).defined() && is_sharded(outputs[o]) && !is_meta(outputs[o]))
      problems.push_back(text("output ", o, " has values, no operand has"));
  }
  const std::string moved = describe(ledger.entries()), expected = describe(real_ledger);
  if (moved != expected)
    problems.push_back("without values moves " + moved + ", with them " + expected);
  return problems;
}

}  // namespace meshtorch::conformance
