// SPDX-License-Identifier: Apache-2.0
//
// A small convolutional network for 8 x 8 grey digits: two blocks of convolution, batch norm, relu
// and pooling, then dropout and a linear head.
#pragma once

#include <cstdint>

#include <torch/torch.h>

#include <meshtorch/tree/path_rules.h>

namespace meshtorch {

struct CnnOptions {
  std::int64_t classes = 10;
  std::int64_t channels = 32;  // of the first block; the second has twice as many
  double dropout = 0.5;
};

class CnnImpl : public torch::nn::Module {
 public:
  // Throws Error unless the sizes are positive and 0 <= dropout < 1.
  explicit CnnImpl(CnnOptions options = {});

  // [N, 1, 8, 8] -> logits [N, classes]
  torch::Tensor forward(torch::Tensor x);

 private:
  torch::nn::Conv2d conv1_{nullptr}, conv2_{nullptr};
  torch::nn::BatchNorm2d norm1_{nullptr}, norm2_{nullptr};
  torch::nn::Dropout dropout_{nullptr};
  torch::nn::Linear head_{nullptr};
};
TORCH_MODULE(Cnn);

// Data parallelism: every parameter and buffer whole on every device; shard the batch.
PathRules cnn_sharding();

}  // namespace meshtorch
