// SPDX-License-Identifier: Apache-2.0
//
// One call: what is compared.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>

#include <meshtorch/base/error.h>
#include <meshtorch/layout/shard.h>
#include <meshtorch/tensor/kernel.h>
#include <meshtorch/tensor/runtime.h>
#include <meshtorch/tensor/sharded.h>
#include <meshtorch/tensor/sharding.h>

#include "bytes.h"
#include "compare.h"
#include "meta.h"
#include "runner.h"

namespace meshtorch::conformance {
namespace {

constexpr std::uint64_t kRandomSeed = 11;

// Leaves of the double kinds are differentiated.
bool differentiable(const Instance& instance, const at::Tensor& x) {
  return instance.of().gradients && x.defined() &&
         (x.scalar_type() == at::kDouble || x.scalar_type() == at::kComplexDouble);
}

bool can_flow(const at::Tensor& output) { return output.defined() && output.requires_grad(); }

Tensors gradients_of(const Tensors& outputs, const Tensors& operands, const Tensors& cotangents) {
  Tensors from, at, of;
  for (std::size_t o = 0; o < outputs.size(); ++o) {
    if (!cotangents[o].defined()) continue;
    from.push_back(outputs[o]);
    at.push_back(cotangents[o]);
  }
  for (const at::Tensor& x : operands) {
    if (x.defined() && x.requires_grad()) of.push_back(x);
  }
  Tensors result(operands.size());
  if (from.empty() || of.empty()) return result;
  const Tensors found = torch::autograd::grad(from, of, at, std::nullopt, false, true);
  std::size_t next = 0;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (!operands[i].defined() || !operands[i].requires_grad()) continue;
    result[i] = found[next++];
    // What libtorch knows to be zero (sgn's) has no memory to compare.
    if (result[i].defined() && result[i]._is_zerotensor())
      result[i] = at::zeros(result[i].sizes(), result[i].options());
  }
  return result;
}

Tensors plain_leaves(const Instance& instance, const Tensors& values) {
  Tensors leaves;
  for (const at::Tensor& x : values) {
    leaves.push_back(x.defined() ? x.detach().clone() : x);
    if (differentiable(instance, x)) leaves.back().requires_grad_(true);
  }
  return leaves;
}

double tolerance_of_all(const Tensors& values, const Tensors& outputs) {
  double worst = 1e-9;
  for (const Tensors* list : {&values, &outputs}) {
    for (const at::Tensor& x : *list) {
      if (x.defined()) worst = std::max(worst, tolerance_of(x.scalar_type()));
    }
  }
  return worst;
}

// Fills all but `values`: runs the call on the leaves.
void evaluate(const Instance& instance, const Tensors& leaves, std::uint64_t seed,
              Reference& reference) {
  Tensors outputs;
  try {
    outputs = call(instance.of().handle, instance.stack(leaves), &reference.others);
  } catch (const std::exception& error) {
    reference.thrown = message_of(error);
    return;
  }
  at::manual_seed(seed + 1);
  for (const at::Tensor& output : outputs) {
    if (!can_flow(output)) {
      reference.cotangents.emplace_back();
    } else {
      const at::Tensor plain = full(output.detach());
      reference.cotangents.push_back(plain.is_complex()
                                         ? at::randn_like(plain)
                                         : at::round(at::randn_like(plain).mul(1024)).div(1024));
    }
  }
  const Tensors gradients = gradients_of(outputs, leaves, reference.cotangents);
  for (const at::Tensor& gradient : gradients)
    reference.gradients.push_back(gradient.defined() ? full(gradient).detach() : gradient);
  for (const at::Tensor& output : outputs)
    reference.outputs.push_back(output.defined() ? full(output.detach()) : output);
  for (const at::Tensor& leaf : leaves)
    reference.after.push_back(leaf.defined() ? full(leaf.detach()) : leaf);
  reference.tolerance = tolerance_of_all(reference.values, reference.outputs);
}

// Every addressable shard is the slice that the layout claims, summed over the unreduced axes.
std::string untruth(const at::Tensor& output, const at::Tensor& expected, double tolerance) {
  const NamedSharding sharding = sharding_of(output);
  const Layout layout = resolve(sharding.mesh, sharding.spec, output.dim());
  if (output.sizes() != expected.sizes())
    return text("says that it has sizes ", output.sizes(), ", expected ", expected.sizes());
  const auto shards = addressable_shards(output);
  const auto& positions = Runtime::current().communicator().addressable(sharding.mesh);
  const AxisList unreduced = ordered(layout.unreduced);
  for (std::size_t d = 0; d < shards.size(); ++d) {
    at::Tensor slice = expected;
    for (std::size_t dim = 0; dim < shards[d].index.size(); ++dim)
      slice = slice.narrow(static_cast<std::int64_t>(dim), shards[d].index[dim].begin,
                           shards[d].index[dim].size());
    at::Tensor held = shards[d].data.detach();
    if (!unreduced.empty()) {
      if (sharding.mesh.group_rank(positions[d], unreduced) != 0) continue;
      held = at::zeros_like(held);
      for (const std::int64_t position : sharding.mesh.group(positions[d], unreduced)) {
        const at::Tensor& part = shards[static_cast<std::size_t>(position)].data;
        if (part.sizes() != held.sizes())
          return text("device ", position, " has sizes ", part.sizes(), ", expected ",
                      held.sizes());
        held = held + part.detach();
      }
    }
    const std::string problem = difference(held, slice, tolerance);
    if (!problem.empty())
      return text("claims ", sharding.spec, " but the shard of device ", d, " ", problem);
  }
  return "";
}

bool is_host(const Scene& scene, std::size_t output) {
  if (!scene.rule) return true;
  const auto& host = scene.rule->host_outputs;
  return std::find(host.begin(), host.end(), static_cast<int>(output)) != host.end();
}

void check_output(const Scene& scene, std::size_t o, const at::Tensor& output,
                  const Consistent* expected, std::vector<std::string>& problems) {
  const Reference& reference = scene.reference;
  const Compare compare = scene.instance.of().compare;
  const at::Tensor& dense = reference.outputs[o];
  const std::string where = text("output ", o, " ");
  if (!output.defined() || !dense.defined()) {
    const std::string problem = difference(output, dense, 0);
    if (!problem.empty()) problems.push_back(where + problem);
    return;
  }
  const at::Tensor whole = full(output.detach());
  std::string problem;
  if (compare == Compare::shape) {
    // Bytes are a buffer for the op's own backward, each device's as large as that needs.
    const bool opaque = dense.scalar_type() == at::kByte && whole.scalar_type() == at::kByte;
    if (!opaque) problem = difference(at::zeros_like(whole), at::zeros_like(dense), 0);
  } else {
    problem =
        difference(comparable(whole, compare), comparable(dense, compare), reference.tolerance);
  }
  if (!problem.empty()) {
    problems.push_back(where + problem + " (" + meshtorch::describe(output) + ")");
    return;
  }
  if (!is_sharded(output)) {
    if (!is_host(scene, o)) problems.push_back(where + "is a plain tensor");
    return;
  }
  if (compare != Compare::shape) {
    problem =
        untruth(output, compare == Compare::values || compare == Compare::seeded ? dense : whole,
                reference.tolerance);
    if (!problem.empty()) problems.push_back(where + problem);
  }
  if (expected == nullptr || scene.rule->outputs.empty()) return;
  const auto& wanted = expected->outputs[std::min(o, expected->outputs.size() - 1)];
  const NamedSharding sharding = sharding_of(output);
  if (wanted && resolve(sharding.mesh, sharding.spec, output.dim()) != *wanted)
    problems.push_back(text(where, "lies as ", sharding.spec, ", by its rule (", expected->why,
                            ") as ", to_string(scene.mesh, *wanted)));
}

// How the gradient of an output arrives: plain, as the output lies, or unreduced.
at::Tensor place_cotangent(const at::Tensor& cotangent, const at::Tensor& output, const Mesh& mesh,
                           std::uint64_t way) {
  if (!cotangent.defined() || !is_sharded(output) || way % 3 == 0) return cotangent;
  const NamedSharding sharding = sharding_of(output);
  Layout layout = resolve(sharding.mesh, sharding.spec, output.dim());
  layout.unreduced = {};
  if (way % 3 == 2) {
    for (int axis = 0; axis < mesh.rank(); ++axis) {
      if (!layout.sharded().contains(axis)) layout.unreduced.insert(axis);
    }
  }
  return put(cotangent, mesh, layout, way);
}

void check_gradients(const Scene& scene, const Tensors& operands, const Tensors& outputs,
                     std::uint64_t way, std::vector<std::string>& problems) {
  const Reference& reference = scene.reference;
  Tensors cotangents;
  bool any = false;
  for (std::size_t o = 0; o < outputs.size(); ++o) {
    if (can_flow(outputs[o]) != reference.cotangents[o].defined()) {
      problems.push_back(text("output ", o,
                              can_flow(outputs[o])
                                  ? " requires a gradient, not so in the dense result"
                                  : " requires no gradient"));
      return;
    }
    any |= reference.cotangents[o].defined();
    cotangents.push_back(
        place_cotangent(reference.cotangents[o], outputs[o], scene.mesh, way / 3 + o));
  }
  if (!any) return;
  const std::string arrives =
      " (cotangent of output 0 " +
      (cotangents[0].defined() ? meshtorch::describe(cotangents[0]) : "none") + ")";
  Tensors gradients;
  try {
    gradients = gradients_of(outputs, operands, cotangents);
  } catch (const std::exception& error) {
    problems.push_back("backward throws: " + message_of(error) + arrives);
    return;
  }
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const at::Tensor& wanted = reference.gradients[i];
    const at::Tensor got = gradients[i].defined() ? full(gradients[i].detach()) : gradients[i];
    std::string problem;
    if (got.defined() != wanted.defined()) {
      const at::Tensor& there = got.defined() ? got : wanted;
      problem = difference(there, at::zeros_like(there), reference.tolerance);
    } else {
      problem = difference(got, wanted, reference.tolerance);
      if (problem.empty() && is_sharded(gradients[i]))
        problem = untruth(gradients[i], wanted, reference.tolerance);
    }
    if (!problem.empty())
      problems.push_back("gradient of " + scene.instance.name(i) + " " + problem + arrives);
  }
}

// Operands that the dense call wrote (running statistics) must be written, all others left alone.
void check_operands(const Scene& scene, const Tensors& operands,
                    std::vector<std::string>& problems) {
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (!operands[i].defined()) continue;
    const std::string problem =
        difference(full(operands[i].detach()), scene.reference.after[i], scene.reference.tolerance);
    if (!problem.empty())
      problems.push_back("after the call operand " + scene.instance.name(i) + " " + problem);
  }
}

}  // namespace

std::string message_of(const std::exception& error) {
  const std::string whole = error.what();
  return whole.substr(0, whole.find("\nException raised from"));
}

Reference reference_of(const Instance& instance, std::uint64_t seed) {
  Reference reference;
  reference.values = instance.values(seed);
  evaluate(instance, plain_leaves(instance, reference.values), seed, reference);
  return reference;
}

Reference seeded_reference(const Instance& instance, const Mesh& mesh, std::uint64_t seed) {
  Reference reference;
  reference.values = instance.values(seed);
  Tensors leaves;
  for (const at::Tensor& x : reference.values) {
    leaves.push_back(x.defined() ? put(x, mesh, Layout::replicated(x.dim()), 0) : x);
    if (differentiable(instance, x)) leaves.back().requires_grad_(true);
  }
  Runtime::current().manual_seed(kRandomSeed);
  evaluate(instance, leaves, seed, reference);
  return reference;
}

namespace {

std::vector<std::string> run_and_compare(const Scene& scene, const Placing& placing,
                                         const Consistent* expected) {
  const Instance& instance = scene.instance;
  const Reference& reference = scene.reference;
  std::vector<std::string> problems;
  Tensors operands;
  for (std::size_t i = 0; i < placing.size(); ++i) {
    const at::Tensor& x = reference.values[i];
    operands.push_back(!x.defined()       ? x
                       : placing[i].plain ? x.detach().clone()
                                          : put(x, scene.mesh, placing[i].layout, scene.seed + i));
    if (differentiable(instance, x)) operands.back().requires_grad_(true);
  }
  const Tensors dry = without_values(operands);
  Runtime::current().ledger().clear();
  if (instance.of().compare == Compare::seeded) Runtime::current().manual_seed(kRandomSeed);
  Tensors outputs;
  std::vector<c10::IValue> others;
  try {
    outputs = call(instance.of().handle, instance.stack(operands), &others);
  } catch (const std::exception& error) {
    if (reference.thrown.empty()) problems.push_back("throws: " + message_of(error));
    return problems;
  }
  if (!reference.thrown.empty())
    return {"throws nothing, plain libtorch does: " + reference.thrown};
  problems = check_ledger(scene, placing, expected);
  const std::vector<LedgerEntry> ledger = Runtime::current().ledger().entries();
  if (outputs.size() != reference.outputs.size())
    return {text("gives ", outputs.size(), " tensors, expected ", reference.outputs.size())};
  if (others != reference.others) problems.push_back("results that are no tensors differ");
  for (std::size_t o = 0; o < outputs.size(); ++o)
    check_output(scene, o, outputs[o], expected, problems);
  if (!problems.empty()) return problems;
  problems = check_meta(scene, dry, outputs, ledger);
  check_operands(scene, operands, problems);
  std::uint64_t way = scene.seed;
  for (const Place& place : placing) {
    way = way * 31 + place.plain + 7u * place.layout.unreduced.bits();
    for (const AxisList& axes : place.layout.dims) way = way * 31 + axes.packed();
  }
  check_gradients(scene, operands, outputs, way >> 8, problems);
  return problems;
}

}  // namespace

std::vector<std::string> check_call(const Scene& scene, const Placing& placing,
                                    const Consistent* expected) {
  try {
    return run_and_compare(scene, placing, expected);
  } catch (const std::exception& error) {
    return {"a result cannot be looked at: " + message_of(error)};
  }
}

}  // namespace meshtorch::conformance
