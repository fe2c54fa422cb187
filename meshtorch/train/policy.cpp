// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/train/policy.h>

#include <torch/torch.h>

#include <algorithm>

#include <meshtorch/base/error.h>
#include <meshtorch/tensor/constrain.h>
#include <meshtorch/tensor/module.h>
#include <meshtorch/tensor/sequential_child.h>
#include <meshtorch/train/remat.h>
#include <meshtorch/tree/pattern.h>

namespace meshtorch {
namespace {

Rule resolved(const AutoMegatron& megatron, const PolicyHooks& hooks) {
  if (!hooks.megatron) {
    fail({.op = "apply",
          .where = "megatron",
          .what = "its specs come from watching the model run, which nothing here does",
          .remedy = "give PolicyHooks{.megatron}, which makes a SpecTable"});
  }
  return hooks.megatron(megatron);
}

std::vector<SequentialPlace> places_of_remat(const Policy& policy,
                                             const std::vector<SequentialPlace>& all) {
  std::vector<bool> fired(all.size());
  for (std::size_t r = 0; r < policy.remat.size(); ++r) {
    const std::string& pattern = policy.remat[r];
    const std::string where = text("remat ", r, " \"", pattern, "\"");
    const std::regex compiled = compile_pattern(pattern, "apply", where);
    bool any = false;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (!search_pattern(compiled, all[i].path, "apply", pattern)) continue;
      fired[i] = any = true;
    }
    if (any) continue;
    fail({.op = "apply",
          .where = where,
          .what = "fires for no child of a Sequential",
          .remedy = all.empty() ? "there are none: write x = remat(block, x) in the model"
                                : "correct it: paths are as " + all[0].path});
  }
  std::vector<SequentialPlace> places;
  for (std::size_t i = 0; i < all.size(); ++i)
    if (fired[i]) places.push_back(all[i]);
  return places;
}

void check_activations(const Policy& policy, const torch::nn::Module& module, const Mesh& mesh,
                       const std::vector<SequentialPlace>& places) {
  std::vector<std::string> modules;
  for (const SequentialPlace& place : places) modules.push_back(place.path);
  match_activations(policy.activations, mesh, module.named_parameters().keys(), modules);
}

}  // namespace

ZeroOptions Policy::zero_options() const {
  const ZeroPolicy said = zero.value_or(ZeroPolicy{});
  return {.axis = said.axis,
          .stage = said.stage,
          .clip_norm = said.clip_norm,
          .reduce = said.reduce,
          .keep_gathered = said.keep_gathered,
          .bucket_bytes = said.bucket_bytes,
          .overlap = said.overlap,
          .precision = precision,
          .skip_nonfinite = said.skip_nonfinite};
}

Rules rules_of(const Policy& policy, const PolicyHooks& hooks) {
  std::vector<Rule> rules;
  for (const PolicyItem& item : policy.rules) {
    const auto* megatron = std::get_if<AutoMegatron>(&item);
    rules.push_back(megatron != nullptr ? resolved(*megatron, hooks) : std::get<Rule>(item));
  }
  const Rules made = Rules(std::move(rules)).otherwise(policy.otherwise);
  return policy.even ? made.even() : made;
}

PolicyReport apply(const Policy& policy, torch::nn::Module& module, const Mesh& mesh,
                   const PolicyHooks& hooks) {
  const Rules rules = rules_of(policy, hooks);
  const auto children = sequential_children(module);
  const auto again = places_of_remat(policy, children);
  check_activations(policy, module, mesh, children);

  PolicyReport report{.leaves = shard(module, mesh, rules)};
  if (!policy.activations.empty()) report.activations = constrain(module, policy.activations);
  for (const SequentialPlace& place : again) {
    set_around(place, AroundKind::remat,
               [](const TensorForward& forward, const at::Tensor& x) { return remat(forward, x); });
    report.remat.push_back(place.path);
  }
  return report;
}

std::string PolicyReport::to_string() const {
  std::string out = leaves.to_string();
  if (!activations.matches.empty()) out += text("\n", activations.to_string());
  if (!remat.empty()) out += text("\nrun again in backward: ", join(remat), "\n");
  return out;
}

}  // namespace meshtorch
