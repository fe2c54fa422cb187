// SPDX-License-Identifier: Apache-2.0
//
// A multi-layer perceptron: Linear layers "layers.0", "layers.1", ... with an activation between
// each two. It knows nothing of sharding; the table below does.
#pragma once

#include <cstdint>
#include <string>

#include <torch/torch.h>

#include <meshtorch/tree/path_rules.h>

namespace meshtorch {

enum class Activation { relu, gelu, tanh };

struct MlpOptions {
  std::int64_t in = 1;
  std::int64_t hidden = 32;
  std::int64_t out = 1;
  std::int64_t layers = 2;  // Linear modules: layers - 1 hidden activations
  Activation activation = Activation::relu;
};

class MlpImpl : public torch::nn::Module {
 public:
  // Throws Error unless every size is positive.
  explicit MlpImpl(MlpOptions options = {});

  // [..., in] -> [..., out]
  torch::Tensor forward(torch::Tensor x);

 private:
  MlpOptions options_;
  torch::nn::ModuleList layers_;
};
TORCH_MODULE(Mlp);

// Megatron's pair, alternating: even layers are cut by columns (outputs), odd ones by rows
// (inputs), so that a pair needs one all-reduce. With an odd number of layers the last one's output
// stays cut.
PathRules mlp_sharding(const std::string& axis = "tp");

}  // namespace meshtorch
