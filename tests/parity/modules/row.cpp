// SPDX-License-Identifier: Apache-2.0
#include "row.h"

namespace meshtorch::modules {
namespace {

Input of_shape(Sizes shape, std::function<at::Tensor(const Sizes&)> draw) {
  const auto batch = std::find(shape.begin(), shape.end(), B);
  const int dim = batch == shape.end() ? -1 : static_cast<int>(batch - shape.begin());
  return {[=](std::int64_t size) {
            Sizes sizes = shape;
            if (dim >= 0) sizes[dim] = size;
            return draw(sizes);
          },
          dim};
}

}  // namespace

Input values(std::function<at::Tensor(std::int64_t)> draw, int batch_dim) {
  return Input{std::move(draw), batch_dim}.constant();
}

Input real(Sizes shape) {
  return of_shape(std::move(shape),
                  [](const Sizes& sizes) { return torch::randn(sizes, torch::kDouble); });
}

Input unit(Sizes shape) {
  return of_shape(std::move(shape), [](const Sizes& sizes) {
    return torch::rand(sizes, torch::kDouble) * 0.9 + 0.05;
  });
}

Input distinct(Sizes shape) {
  return of_shape(std::move(shape), [](const Sizes& sizes) {
    const auto count = c10::multiply_integers(sizes);
    return ((torch::randperm(count, torch::kDouble) - count / 2.0) / 10).reshape(sizes);
  });
}

Input sign(Sizes shape) {
  return of_shape(
             std::move(shape),
             [](const Sizes& sizes) { return torch::randint(2, sizes, torch::kDouble) * 2 - 1; })
      .constant();
}

Input index(std::int64_t end, Sizes shape) {
  return of_shape(std::move(shape),
                  [=](const Sizes& sizes) { return torch::randint(end, sizes, torch::kLong); })
      .constant();
}

Row Row::with(std::string what) && {
  options = std::move(what);
  return std::move(*this);
}

Row Row::sharded(std::string name, std::vector<PathRule> rules, std::vector<int> input_dims) && {
  input_dims.resize(inputs.size(), -1);
  layouts.push_back({std::move(name), std::move(rules), std::move(input_dims)});
  return std::move(*this);
}

Row Row::random(Property what) && {
  property = std::move(what);
  return std::move(*this);
}

Row Row::composed() && {
  each_parameter = false;
  return std::move(*this);
}

std::string class_name(const std::type_info& implementation) {
  std::string name = c10::demangle(implementation.name());
  name.erase(0, std::string("torch::nn::").size());
  return name.substr(0, name.size() - std::string("Impl").size());
}

const std::vector<std::pair<std::string, Rows>>& table() {
  static const std::vector<std::pair<std::string, Rows>> all{
      {"Linear", linears()},
      {"Convolution", convolutions()},
      {"Pooling", pools()},
      {"Normalization", norms()},
      {"Activation", activations()},
      {"Dropout", dropouts()},
      {"Embedding", embeddings()},
      {"Recurrent", recurrences()},
      {"Transformer", transformers()},
      {"Padding, folding, reordering", pads_and_reorderings()},
      {"Loss and distance", losses()},
      {"Container", containers()},
  };
  return all;
}

}  // namespace meshtorch::modules
