// SPDX-License-Identifier: Apache-2.0
//
// What the tests of this room share.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include <torch/torch.h>

#include <meshtorch/base/error.h>
#include <meshtorch/tree/path_rules.h>

namespace meshtorch {

template <class F>
std::string message(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Parameters and buffers.
inline std::vector<Leaf> leaves_of(const torch::nn::Module& module) {
  std::vector<Leaf> leaves;
  const auto add = [&](const auto& items) {
    for (const auto& item : items) leaves.push_back({item.key(), item.value().sizes().vec()});
  };
  add(module.named_parameters());
  add(module.named_buffers());
  return leaves;
}

// "layers.0.weight" -> "P(tp)", for every leaf.
inline std::map<std::string, std::string> specs_of(const PathRules& rules, const Mesh& mesh,
                                                   const torch::nn::Module& module) {
  std::map<std::string, std::string> specs;
  for (const auto& match : rules.match(mesh, leaves_of(module)).matches)
    specs[match.leaf.path] = match.spec.to_string();
  return specs;
}

}  // namespace meshtorch
