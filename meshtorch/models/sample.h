// SPDX-License-Identifier: Apache-2.0
//
// Text from a model over bytes, one byte at a time. The model is a callback, so plain, sharded and
// fake ones serve alike; the random numbers are a hash of (seed, step), so a seed gives the same
// text wherever the logits are the same.
//
//   torch::NoGradGuard no_grad;
//   model->eval();
//   std::string text = sample([&](const torch::Tensor& tokens) { return model->forward(tokens); },
//                             "In the beginning", {.bytes = 300, .length = 256, .temperature =
//                             0.8});
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include <torch/torch.h>

namespace meshtorch {

// tokens [1, T] int64 -> logits [1, T, V] with V <= 256, a plain tensor on any device.
using LogitsFunction = std::function<torch::Tensor(const torch::Tensor& tokens)>;

struct SampleOptions {
  std::int64_t bytes = 200;   // to add to the prompt
  std::int64_t length = 256;  // the model sees at most so many of the last bytes
  double temperature = 1.0;   // below 1: likelier bytes
  bool greedy = false;        // the likeliest byte, the first of equals; temperature has no say
  std::uint64_t seed = 0;
};

// The prompt and what follows; an empty prompt begins after a newline that is not returned. Throws
// Error on a temperature that is not positive, sizes below their
// least, logits of another shape or not finite.
std::string sample(const LogitsFunction& logits, const std::string& prompt,
                   const SampleOptions& options = {});

// Uniform in [0, 1): SplitMix64 (Steele, Lea, Flood, 2014) of the seed at place `step`.
double uniform_at(std::uint64_t seed, std::uint64_t step);

}  // namespace meshtorch
