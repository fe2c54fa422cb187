// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/models/mlp.h>

#include <meshtorch/base/error.h>

namespace meshtorch {
namespace {

void check_positive(const char* name, std::int64_t value) {
  if (value < 1) fail({"Mlp", name, text(value, " is not a size"), "use at least 1"});
}

torch::Tensor activate(Activation activation, const torch::Tensor& x) {
  switch (activation) {
    case Activation::relu:
      return torch::relu(x);
    case Activation::gelu:
      return torch::gelu(x, "tanh");
    case Activation::tanh:
      return torch::tanh(x);
  }
  fail({"Mlp", "activation", "not one of the enumerators", "use relu, gelu or tanh"});
}

}  // namespace

MlpImpl::MlpImpl(MlpOptions options) : options_(options) {
  check_positive("in", options.in);
  check_positive("hidden", options.hidden);
  check_positive("out", options.out);
  check_positive("layers", options.layers);
  layers_ = register_module("layers", torch::nn::ModuleList());
  for (std::int64_t i = 0; i < options.layers; ++i)
    layers_->push_back(torch::nn::Linear(i == 0 ? options.in : options.hidden,
                                         i + 1 == options.layers ? options.out : options.hidden));
}

torch::Tensor MlpImpl::forward(torch::Tensor x) {
  for (std::size_t i = 0; i < layers_->size(); ++i) {
    x = layers_[i]->as<torch::nn::Linear>()->forward(x);
    if (i + 1 < layers_->size()) x = activate(options_.activation, x);
  }
  return x;
}

PathRules mlp_sharding(const std::string& axis) {
  return {{R"(layers\.\d*[02468]\.(weight|bias)$)", P(axis)},
          {R"(layers\.\d*[13579]\.weight$)", P(whole, axis)},
          {R"(layers\.\d*[13579]\.bias$)", P()}};
}

}  // namespace meshtorch
