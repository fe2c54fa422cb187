// SPDX-License-Identifier: Apache-2.0
//
// A GPT: learned positions, pre-norm blocks, GELU, GPT-2's initialisation. It is plain torch::nn
// and knows nothing of sharding; gpt_sharding() is the table that makes it tensor parallel.
//
//   tokens.weight [V, W]                       layers.3.norm1.{weight,bias} [W]
//   positions.weight [L, W]                    layers.3.attention.{q,k,v,out}.{weight [W, W], bias
//   [W]} norm.{weight,bias} [W]                     layers.3.norm2.{weight,bias} [W] head.weight
//   [V, W], unless tied            layers.3.mlp.up.{weight [4W, W], bias [4W]}
//                                              layers.3.mlp.down.{weight [W, 4W], bias [W]}
//
// q, k and v are three modules because a cut of one fused [3W, W] weight would not be a cut of
// heads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <torch/torch.h>

#include <meshtorch/tree/activation_rules.h>
#include <meshtorch/tree/path_rules.h>

namespace meshtorch {

struct GptOptions {
  std::int64_t vocabulary = 256;
  std::int64_t length = 256;  // longest context, in tokens
  std::int64_t width = 256;
  std::int64_t layers = 6;
  std::int64_t heads = 8;
  double dropout = 0.0;  // of the embeddings and of what each block adds; attention itself has none
  bool tied = false;     // the head is tokens.weight; there is no head.weight then
};

// Trainable elements of a Gpt with these options.
std::int64_t parameter_count(const GptOptions& options);

// Throws Error when `tp` devices along `axis` cannot each have whole heads.
void check_tensor_parallel(const GptOptions& options, std::int64_t tp,
                           const std::string& axis = "tp");

// Queries, keys and values by head, causal attention, one projection out.
class GptAttentionImpl : public torch::nn::Module {
 public:
  explicit GptAttentionImpl(const GptOptions& options);
  torch::Tensor forward(const torch::Tensor& x);  // [B, T, W] -> [B, T, W]

 private:
  std::int64_t heads_;
  torch::nn::Linear q_{nullptr}, k_{nullptr}, v_{nullptr}, out_{nullptr};
};
TORCH_MODULE(GptAttention);

class GptMlpImpl : public torch::nn::Module {
 public:
  explicit GptMlpImpl(const GptOptions& options);
  torch::Tensor forward(const torch::Tensor& x);  // [B, T, W] -> [B, T, W]

 private:
  torch::nn::Linear up_{nullptr}, down_{nullptr};
};
TORCH_MODULE(GptMlp);

// x + attention(norm1(x)), then x + mlp(norm2(x)).
class GptBlockImpl : public torch::nn::Module {
 public:
  explicit GptBlockImpl(const GptOptions& options);
  torch::Tensor forward(torch::Tensor x);  // [B, T, W] -> [B, T, W]

 private:
  torch::nn::LayerNorm norm1_{nullptr}, norm2_{nullptr};
  GptAttention attention_{nullptr};
  GptMlp mlp_{nullptr};
  torch::nn::Dropout dropout_{nullptr};
};
TORCH_MODULE(GptBlock);

class GptImpl : public torch::nn::Module {
 public:
  // Throws Error on a size below 1, a width that the heads do not divide, a dropout outside [0, 1).
  explicit GptImpl(GptOptions options = {});

  const GptOptions& options() const { return options_; }

  // tokens [B, T] int64, 1 <= T <= length -> logits [B, T, V]
  torch::Tensor forward(const torch::Tensor& tokens);

  // Cross entropy in nats, the mean over targets that are not -100. inputs and targets [B, T]
  // int64.
  torch::Tensor loss(const torch::Tensor& inputs, const torch::Tensor& targets);

 private:
  GptOptions options_;
  torch::nn::Embedding tokens_{nullptr}, positions_{nullptr};
  torch::nn::Dropout dropout_{nullptr};
  torch::nn::ModuleList layers_;
  torch::nn::LayerNorm norm_{nullptr};
  torch::nn::Linear head_{nullptr};
};
TORCH_MODULE(Gpt);

// Megatron's layout: heads, the hidden units of the MLP and the vocabulary are cut over `axis`.
// Each block then costs two all-reduces forward and two backward.
PathRules gpt_sharding(const std::string& axis = "tp");

// Sequence parallelism beside it, for constrain() (Korthikanti et al., arXiv 2205.05198): between the
// products the sequence is cut over `axis`, so that norms, dropouts and residuals hold 1/tp of the
// activations. Each all-reduce becomes a reduce-scatter and an all-gather, of the same bytes together.
// `data` is the axis of the batch. The gradients of norms, of the biases of `out` and `down` and of the
// positions come out unreduced over `axis`; positions.weight itself needs no rule, since a slice is free.
std::vector<ActivationRule> gpt_sequence_parallel(const std::string& data = "dp",
                                                  const std::string& axis = "tp");

}  // namespace meshtorch
