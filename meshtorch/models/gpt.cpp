// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/models/gpt.h>

#include <cmath>

#include <meshtorch/base/error.h>

namespace meshtorch {
namespace {

namespace nn = torch::nn;

constexpr double kStd = 0.02;
constexpr std::int64_t kExpansion = 4;  // hidden units of the MLP per width

void check_positive(const char* name, std::int64_t value) {
  if (value < 1) fail({"Gpt", name, text(value, " is not a size"), "use at least 1"});
}

void check(const GptOptions& options) {
  check_positive("vocabulary", options.vocabulary);
  check_positive("length", options.length);
  check_positive("width", options.width);
  check_positive("layers", options.layers);
  check_positive("heads", options.heads);
  if (options.width % options.heads != 0)
    fail({"Gpt", "heads",
          text("width ", options.width, " does not split into ", options.heads, " heads"),
          "use a divisor of the width"});
  if (!(options.dropout >= 0.0 && options.dropout < 1.0))
    fail({"Gpt", "dropout", text(options.dropout, " is out of range"), "use 0 <= dropout < 1"});
}

nn::Linear linear(std::int64_t in, std::int64_t out, double std = kStd, bool bias = true) {
  nn::Linear module(nn::LinearOptions(in, out).bias(bias));
  nn::init::normal_(module->weight, 0.0, std);
  if (bias) nn::init::zeros_(module->bias);
  return module;
}

// Into the residual stream: GPT-2 scales by its 2 * layers summands.
nn::Linear residual(std::int64_t in, const GptOptions& options) {
  return linear(in, options.width, kStd / std::sqrt(2.0 * static_cast<double>(options.layers)));
}

nn::Embedding embedding(std::int64_t rows, std::int64_t width) {
  nn::Embedding module(rows, width);
  nn::init::normal_(module->weight, 0.0, kStd);
  return module;
}

nn::LayerNorm layer_norm(std::int64_t width) {
  return nn::LayerNorm(nn::LayerNormOptions({width}));
}

}  // namespace

std::int64_t parameter_count(const GptOptions& options) {
  const auto w = options.width;
  const auto block = 4 * (w * w + w) + (2 * kExpansion * w * w + kExpansion * w + w) + 4 * w;
  const auto tables = options.vocabulary * (options.tied ? 1 : 2) + options.length;
  return tables * w + options.layers * block + 2 * w;
}

void check_tensor_parallel(const GptOptions& options, std::int64_t tp, const std::string& axis) {
  if (tp < 1) fail({"Gpt", "axis " + axis, text(tp, " devices"), "use at least 1"});
  if (options.heads % tp != 0)
    fail({"Gpt", "heads",
          text(options.heads, " heads do not split over the ", tp, " devices of axis ", axis),
          text("use a divisor of ", options.heads, " for ", axis)});
}

GptAttentionImpl::GptAttentionImpl(const GptOptions& options) : heads_(options.heads) {
  q_ = register_module("q", linear(options.width, options.width));
  k_ = register_module("k", linear(options.width, options.width));
  v_ = register_module("v", linear(options.width, options.width));
  out_ = register_module("out", residual(options.width, options));
}

torch::Tensor GptAttentionImpl::forward(const torch::Tensor& x) {
  const auto batch = x.size(0), length = x.size(1), width = x.size(2);
  const auto by_head = [&](const torch::Tensor& y) {
    return y.view({batch, length, heads_, width / heads_}).transpose(1, 2);
  };
  const auto y =
      at::scaled_dot_product_attention(by_head(q_(x)), by_head(k_(x)), by_head(v_(x)),
                                       /*attn_mask=*/{}, /*dropout_p=*/0.0, /*is_causal=*/true);
  return out_(y.transpose(1, 2).reshape({batch, length, width}));
}

GptMlpImpl::GptMlpImpl(const GptOptions& options) {
  up_ = register_module("up", linear(options.width, kExpansion * options.width));
  down_ = register_module("down", residual(kExpansion * options.width, options));
}

torch::Tensor GptMlpImpl::forward(const torch::Tensor& x) {
  return down_(torch::gelu(up_(x), "tanh"));
}

GptBlockImpl::GptBlockImpl(const GptOptions& options) {
  norm1_ = register_module("norm1", layer_norm(options.width));
  attention_ = register_module("attention", GptAttention(options));
  norm2_ = register_module("norm2", layer_norm(options.width));
  mlp_ = register_module("mlp", GptMlp(options));
  dropout_ = register_module("dropout", nn::Dropout(options.dropout));
}

torch::Tensor GptBlockImpl::forward(torch::Tensor x) {
  x = x + dropout_(attention_(norm1_(x)));
  return x + dropout_(mlp_(norm2_(x)));
}

GptImpl::GptImpl(GptOptions options) : options_(options) {
  check(options);
  tokens_ = register_module("tokens", embedding(options.vocabulary, options.width));
  positions_ = register_module("positions", embedding(options.length, options.width));
  dropout_ = register_module("dropout", nn::Dropout(options.dropout));
  layers_ = register_module("layers", nn::ModuleList());
  for (std::int64_t i = 0; i < options.layers; ++i) layers_->push_back(GptBlock(options));
  norm_ = register_module("norm", layer_norm(options.width));
  if (!options.tied)
    head_ =
        register_module("head", linear(options.width, options.vocabulary, kStd, /*bias=*/false));
}

torch::Tensor GptImpl::forward(const torch::Tensor& tokens) {
  if (tokens.dim() != 2 || tokens.size(1) < 1 || tokens.size(1) > options_.length)
    fail({"Gpt", "tokens",
          text("shape (", join(tokens.sizes()), "), expected (batch, 1 to ", options_.length, ")"),
          "cut the text to the model's length"});
  const auto places = torch::arange(
      tokens.size(1), torch::TensorOptions().dtype(torch::kLong).device(tokens.device()));
  auto x = dropout_(tokens_(tokens) + positions_(places));
  for (const auto& layer : *layers_) x = layer->as<GptBlock>()->forward(x);
  x = norm_(x);
  return head_ ? head_(x) : torch::linear(x, tokens_->weight);
}

torch::Tensor GptImpl::loss(const torch::Tensor& inputs, const torch::Tensor& targets) {
  if (inputs.sizes() != targets.sizes())
    fail({"Gpt", "targets",
          text("shape (", join(targets.sizes()), "), inputs are (", join(inputs.sizes()), ")"),
          "pass the inputs' next tokens"});
  return torch::cross_entropy_loss(forward(inputs).flatten(0, 1), targets.flatten());
}

PathRules gpt_sharding(const std::string& axis) {
  return {{R"(\.(q|k|v|up)\.(weight|bias)$|^(tokens|head)\.weight$)", P(axis)},
          {R"(\.(out|down)\.weight$)", P(whole, axis)},
          {R"(\.(out|down)\.bias$|norm[12]?\.(weight|bias)$|^positions\.weight$)", P()}};
}

std::vector<ActivationRule> gpt_sequence_parallel(const std::string& data,
                                                  const std::string& axis) {
  const P whole_rows(data), cut_rows(data, axis);
  return {{.pattern = R"(norm[12]?\.weight$)", .input = cut_rows},
          {.pattern = R"(\.(q|k|v|up)\.weight$|^head\.weight$)", .input = whole_rows},
          {.pattern = R"(\.(out|down)\.weight$)", .output = cut_rows},
          {.pattern = R"(^tokens\.weight$)", .output = cut_rows, .op = "embedding"},
          {.pattern = R"(^tokens\.weight$)", .input = whole_rows, .op = "linear"}};  // where tied
}

}  // namespace meshtorch
