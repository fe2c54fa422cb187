// SPDX-License-Identifier: Apache-2.0
//
// Model families as they are written where nobody thinks of sharding: plain torch::nn, each with its own
// habits of reshaping heads, normalising and masking.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include <torch/torch.h>

namespace families {

namespace nn = torch::nn;
namespace F = torch::nn::functional;
using torch::Tensor;

// Post-norm encoder with token types, attention by explicit scores and an additive mask.
struct BertLayerImpl : nn::Module {
  BertLayerImpl(std::int64_t width, std::int64_t heads) : heads(heads) {
    query = register_module("query", nn::Linear(width, width));
    key = register_module("key", nn::Linear(width, width));
    value = register_module("value", nn::Linear(width, width));
    dense = register_module("dense", nn::Linear(width, width));
    attention_norm =
        register_module("attention_norm", nn::LayerNorm(nn::LayerNormOptions({width})));
    intermediate = register_module("intermediate", nn::Linear(width, 4 * width));
    output = register_module("output", nn::Linear(4 * width, width));
    output_norm = register_module("output_norm", nn::LayerNorm(nn::LayerNormOptions({width})));
  }

  Tensor split(const Tensor& x) {
    return x.view({x.size(0), x.size(1), heads, x.size(2) / heads}).permute({0, 2, 1, 3});
  }

  Tensor forward(const Tensor& x, const Tensor& mask) {
    const auto q = split(query(x)), k = split(key(x)), v = split(value(x));
    auto scores = torch::matmul(q, k.transpose(-1, -2)) / std::sqrt(static_cast<double>(q.size(3)));
    scores = scores + mask;
    const auto context = torch::matmul(torch::softmax(scores, -1), v)
                             .permute({0, 2, 1, 3})
                             .contiguous()
                             .view({x.size(0), x.size(1), x.size(2)});
    const auto attended = attention_norm(dense(context) + x);
    return output_norm(output(torch::gelu(intermediate(attended))) + attended);
  }

  std::int64_t heads;
  nn::Linear query{nullptr}, key{nullptr}, value{nullptr}, dense{nullptr}, intermediate{nullptr},
      output{nullptr};
  nn::LayerNorm attention_norm{nullptr}, output_norm{nullptr};
};
TORCH_MODULE(BertLayer);

struct BertImpl : nn::Module {
  BertImpl(std::int64_t vocabulary, std::int64_t length, std::int64_t width, std::int64_t heads,
           std::int64_t layers) {
    words = register_module("word_embeddings", nn::Embedding(vocabulary, width));
    positions = register_module("position_embeddings", nn::Embedding(length, width));
    types = register_module("token_type_embeddings", nn::Embedding(2, width));
    norm = register_module("norm", nn::LayerNorm(nn::LayerNormOptions({width})));
    encoder = register_module("encoder", nn::ModuleList());
    for (std::int64_t i = 0; i < layers; ++i) encoder->push_back(BertLayer(width, heads));
    transform = register_module("transform", nn::Linear(width, width));
    transform_norm =
        register_module("transform_norm", nn::LayerNorm(nn::LayerNormOptions({width})));
    bias = register_parameter("bias", torch::zeros({vocabulary}));  // the decoder is the word table
  }

  Tensor forward(const Tensor& tokens) {
    const auto place = torch::arange(tokens.size(1)).unsqueeze(0).expand_as(tokens);
    auto x = norm(words(tokens) + positions(place) + types(torch::zeros_like(tokens)));
    const auto mask = torch::zeros({tokens.size(0), 1, 1, tokens.size(1)});
    for (const auto& layer : *encoder) x = layer->as<BertLayer>()->forward(x, mask);
    x = transform_norm(torch::gelu(transform(x)));
    return torch::matmul(x, words->weight.t()) + bias;
  }

  Tensor loss(const Tensor& tokens, const Tensor& targets) {
    const auto logits = forward(tokens);
    return F::cross_entropy(logits.view({-1, logits.size(2)}), targets.view({-1}));
  }

  nn::Embedding words{nullptr}, positions{nullptr}, types{nullptr};
  nn::LayerNorm norm{nullptr}, transform_norm{nullptr};
  nn::ModuleList encoder;
  nn::Linear transform{nullptr};
  Tensor bias;
};
TORCH_MODULE(Bert);

// RMS norm written out, rotary positions, grouped queries, SwiGLU, no biases.
struct RmsNormImpl : nn::Module {
  explicit RmsNormImpl(std::int64_t width) {
    weight = register_parameter("weight", torch::ones({width}));
  }
  Tensor forward(const Tensor& x) {
    return x * torch::rsqrt(x.pow(2).mean(-1, true) + 1e-5) * weight;
  }
  Tensor weight;
};
TORCH_MODULE(RmsNorm);

struct LlamaLayerImpl : nn::Module {
  LlamaLayerImpl(std::int64_t width, std::int64_t heads, std::int64_t kv_heads)
      : heads(heads), kv_heads(kv_heads) {
    const auto linear = [&](const char* name, std::int64_t in, std::int64_t out) {
      return register_module(name, nn::Linear(nn::LinearOptions(in, out).bias(false)));
    };
    const std::int64_t head = width / heads;
    input_norm = register_module("input_norm", RmsNorm(width));
    q_proj = linear("q_proj", width, heads * head);
    k_proj = linear("k_proj", width, kv_heads * head);
    v_proj = linear("v_proj", width, kv_heads * head);
    o_proj = linear("o_proj", heads * head, width);
    post_norm = register_module("post_norm", RmsNorm(width));
    gate_proj = linear("gate_proj", width, 3 * width);
    up_proj = linear("up_proj", width, 3 * width);
    down_proj = linear("down_proj", 3 * width, width);
  }

  static Tensor rotate(const Tensor& x, const Tensor& cosine, const Tensor& sine) {
    const auto halves = x.chunk(2, -1);
    return x * cosine + torch::cat({-halves[1], halves[0]}, -1) * sine;
  }

  Tensor attend(const Tensor& x, const Tensor& cosine, const Tensor& sine) {
    const auto split = [&](const Tensor& y, std::int64_t count) {
      return y.view({x.size(0), x.size(1), count, -1}).transpose(1, 2);
    };
    const auto q = rotate(split(q_proj(x), heads), cosine, sine);
    auto k = rotate(split(k_proj(x), kv_heads), cosine, sine);
    auto v = split(v_proj(x), kv_heads);
    k = k.repeat_interleave(heads / kv_heads, 1);
    v = v.repeat_interleave(heads / kv_heads, 1);
    const auto y = at::scaled_dot_product_attention(q, k, v, {}, 0.0, /*is_causal=*/true);
    return o_proj(y.transpose(1, 2).reshape({x.size(0), x.size(1), -1}));
  }

  Tensor forward(Tensor x, const Tensor& cosine, const Tensor& sine) {
    x = x + attend(input_norm(x), cosine, sine);
    const auto y = post_norm(x);
    return x + down_proj(torch::silu(gate_proj(y)) * up_proj(y));
  }

  std::int64_t heads, kv_heads;
  RmsNorm input_norm{nullptr}, post_norm{nullptr};
  nn::Linear q_proj{nullptr}, k_proj{nullptr}, v_proj{nullptr}, o_proj{nullptr}, gate_proj{nullptr},
      up_proj{nullptr}, down_proj{nullptr};
};
TORCH_MODULE(LlamaLayer);

struct LlamaImpl : nn::Module {
  LlamaImpl(std::int64_t vocabulary, std::int64_t width, std::int64_t heads, std::int64_t kv_heads,
            std::int64_t layers_count)
      : head_dim(width / heads) {
    embed = register_module("embed_tokens", nn::Embedding(vocabulary, width));
    layers = register_module("layers", nn::ModuleList());
    for (std::int64_t i = 0; i < layers_count; ++i)
      layers->push_back(LlamaLayer(width, heads, kv_heads));
    norm = register_module("norm", RmsNorm(width));
    lm_head =
        register_module("lm_head", nn::Linear(nn::LinearOptions(width, vocabulary).bias(false)));
  }

  Tensor forward(const Tensor& tokens) {
    auto x = embed(tokens);
    const auto rate = torch::pow(
        10000.0, -torch::arange(0, head_dim, 2).to(torch::kFloat) / static_cast<double>(head_dim));
    auto angle = torch::outer(torch::arange(tokens.size(1)).to(torch::kFloat), rate);
    angle = torch::cat({angle, angle}, -1).to(x.scalar_type());
    for (const auto& layer : *layers)
      x = layer->as<LlamaLayer>()->forward(x, angle.cos(), angle.sin());
    return lm_head(norm(x));
  }

  Tensor loss(const Tensor& tokens, const Tensor& targets) {
    const auto logits = forward(tokens);
    return F::cross_entropy(logits.flatten(0, 1), targets.flatten());
  }

  std::int64_t head_dim;
  nn::Embedding embed{nullptr};
  nn::ModuleList layers;
  RmsNorm norm{nullptr};
  nn::Linear lm_head{nullptr};
};
TORCH_MODULE(Llama);

// Patches by convolution, a class token, positions as a parameter, pre-norm blocks in a Sequential.
struct VitBlockImpl : nn::Module {
  VitBlockImpl(std::int64_t width, std::int64_t heads) : heads(heads) {
    norm1 = register_module("norm1", nn::LayerNorm(nn::LayerNormOptions({width})));
    q = register_module("q", nn::Linear(width, width));
    k = register_module("k", nn::Linear(width, width));
    v = register_module("v", nn::Linear(width, width));
    proj = register_module("proj", nn::Linear(width, width));
    norm2 = register_module("norm2", nn::LayerNorm(nn::LayerNormOptions({width})));
    mlp = register_module("mlp", nn::Sequential(nn::Linear(width, 4 * width), nn::GELU(),
                                                nn::Linear(4 * width, width)));
  }

  Tensor forward(Tensor x) {
    const auto y = norm1(x);
    const auto split = [&](const Tensor& z) {
      return z.reshape({z.size(0), z.size(1), heads, -1}).transpose(1, 2);
    };
    auto attention = torch::matmul(
        split(q(y)) * std::pow(static_cast<double>(x.size(2)) / static_cast<double>(heads), -0.5),
        split(k(y)).transpose(-2, -1));
    attention = attention.softmax(-1);
    x = x + proj(torch::matmul(attention, split(v(y))).transpose(1, 2).flatten(2));
    return x + mlp->forward(norm2(x));
  }

  std::int64_t heads;
  nn::LayerNorm norm1{nullptr}, norm2{nullptr};
  nn::Linear q{nullptr}, k{nullptr}, v{nullptr}, proj{nullptr};
  nn::Sequential mlp{nullptr};
};
TORCH_MODULE(VitBlock);

struct VitImpl : nn::Module {
  VitImpl(std::int64_t image, std::int64_t patch, std::int64_t width, std::int64_t heads,
          std::int64_t layers, std::int64_t classes) {
    const std::int64_t patches = (image / patch) * (image / patch);
    embed = register_module("patch_embed",
                            nn::Conv2d(nn::Conv2dOptions(1, width, patch).stride(patch)));
    cls = register_parameter("cls_token", torch::randn({1, 1, width}) * 0.02);
    positions = register_parameter("pos_embed", torch::randn({1, patches + 1, width}) * 0.02);
    for (std::int64_t i = 0; i < layers; ++i) blocks->push_back(VitBlock(width, heads));
    register_module("blocks", blocks);
    norm = register_module("norm", nn::LayerNorm(nn::LayerNormOptions({width})));
    head = register_module("head", nn::Linear(width, classes));
  }

  Tensor forward(const Tensor& images) {
    auto x = embed(images).flatten(2).transpose(1, 2);
    x = torch::cat({cls.expand({x.size(0), -1, -1}), x}, 1) + positions;
    return head(norm(blocks->forward(x)).select(1, 0));
  }

  Tensor loss(const Tensor& images, const Tensor& labels) {
    return F::cross_entropy(forward(images), labels);
  }

  nn::Conv2d embed{nullptr};
  Tensor cls, positions;
  nn::Sequential blocks;
  nn::LayerNorm norm{nullptr};
  nn::Linear head{nullptr};
};
TORCH_MODULE(Vit);

}  // namespace families
