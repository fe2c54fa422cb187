// SPDX-License-Identifier: Apache-2.0
//
// A policy: how a model is spread, as one value beside it, with a text form. The model's file knows none of it.
//
//   const mt::Policy policy = mt::Policy::parse(read("tp2_fsdp4.json"));
//   Gpt model(config);
//   std::cout << mt::apply(policy, *model, mesh).to_string();     // shard, constrain, remat
//   mt::Zero<AdamW> optimizer(model->parameters(), policy.zero_options(), AdamWOptions(3e-4));
//
//   {
//     "rules": [
//       {"paths": [{"pattern": "\\.(q|k|v)\\.weight$", "spec": "P(tp)", "heads": 8},
//                  {"pattern": "\\.down\\.weight$", "spec": "P(-, tp)"}],
//        "otherwise": "replicate"},
//       {"logical": {"axes": [["embed", "fsdp"], ["batch", ["dp", "fsdp"]], ["length", null]],
//                    "names": [{"pattern": "tokens", "names": ["vocab", "embed"]}]}},
//       {"table": {"name": "mine", "specs": {"head.weight": "P(tp)"}}},
//       {"megatron": {"axis": "tp"}},
//       {"fsdp": {"axis": "fsdp", "min_size": 65536}}
//     ],
//     "otherwise": "error", "even": false,
//     "precision": "params=float32,compute=bfloat16",
//     "activations": [{"pattern": "norm\\d\\.weight$", "input": "P(dp, tp)"}],
//     "remat": ["^blocks\\.\\d+$"],
//     "zero": {"axis": "fsdp", "stage": 1, "clip_norm": 1.0}
//   }
//
// Every key may be left out. What a key means: rules (tree/rules.h), otherwise and even (Rules::otherwise,
// even), precision (precision.h), activations (tree/activation_rules.h), remat (patterns of paths of children
// of torch::nn::Sequential: tensor/sequential_child.h), zero (zero.h). docs/policy.md has all of them.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <torch/nn/module.h>

#include <meshtorch/train/zero.h>
#include <meshtorch/tree/activation_rules.h>
#include <meshtorch/tree/rules.h>

namespace meshtorch {

// Specs that are found by watching the model run: what runs it makes the table (PolicyHooks).
struct AutoMegatron {
  std::string axis = "tp";
  friend bool operator==(const AutoMegatron&, const AutoMegatron&) = default;
};

using PolicyItem = std::variant<Rule, AutoMegatron>;

// The part of ZeroOptions that is said in a policy; left out means what it means there.
struct ZeroPolicy {
  std::string axis = ZeroOptions{}.axis;
  int stage = ZeroOptions{}.stage;
  std::optional<double> clip_norm = {};
  std::optional<Reduce> reduce = {};
  bool keep_gathered = ZeroOptions{}.keep_gathered;
  std::int64_t bucket_bytes = ZeroOptions{}.bucket_bytes;
  bool overlap = ZeroOptions{}.overlap;
  bool skip_nonfinite = ZeroOptions{}.skip_nonfinite;
  friend bool operator==(const ZeroPolicy&, const ZeroPolicy&) = default;
};

struct Policy {
  std::vector<PolicyItem> rules = {};
  Unmatched otherwise = Unmatched::error;
  bool even = false;
  std::optional<Precision> precision = {};
  std::vector<ActivationRule> activations = {};
  std::vector<std::string> remat = {};
  std::optional<ZeroPolicy> zero = {};

  // Throws Error with the place in the text, "rules[1].paths[0].spec": text that is no JSON or ends too early,
  // an unknown or repeated key, a value of another type, and what the rules themselves refuse.
  static Policy parse(std::string_view json);
  // parse gives it back. What has its default is left out. Throws Error for a PolicyRule, which is code, and
  // for text that is no UTF-8.
  std::string to_string() const;

  // For the optimizer: zero's options with the policy's precision.
  ZeroOptions zero_options() const;
  friend bool operator==(const Policy&, const Policy&) = default;
};

struct PolicyHooks {
  // Makes the table of an AutoMegatron.
  std::function<SpecTable(const AutoMegatron&)> megatron = {};
};

// Throws Error for an AutoMegatron without a hook.
Rules rules_of(const Policy& policy, const PolicyHooks& hooks = {});

struct PolicyReport {
  MatchReport leaves;
  ConstraintReport activations;
  std::vector<std::string> remat;  // paths of the modules that run again in backward
  std::string to_string() const;
};

// Shards the module by the rules, attaches the constraints, and puts remat around the children of Sequential
// modules that a pattern fires for. Precision and zero are the optimizer's. Throws Error: what Rules::match,
// constrain and the hook throw, a remat pattern that fires for no child of a Sequential. Patterns are checked
// before anything is changed.
PolicyReport apply(const Policy& policy, torch::nn::Module& module, const Mesh& mesh,
                   const PolicyHooks& hooks = {});

}  // namespace meshtorch
