// SPDX-License-Identifier: Apache-2.0
//
// One step of training and one pass of validation, as functions of state and batch.
#pragma once

#include <cstdint>

#include <torch/torch.h>

#include <meshtorch/data/text.h>
#include <meshtorch/mesh/mesh.h>
#include <meshtorch/models/gpt.h>
#include <meshtorch/train/zero.h>

namespace meshtorch {

struct TrainState {
  Mesh mesh;
  Gpt model;
  Zero<torch::optim::AdamW> optimizer;
};

struct StepResult {
  double loss = 0;           // nats per token, the mean over the batch
  double gradient_norm = 0;  // before clipping
};

// Forward, backward and update on a global batch. Gradients of the microbatches add up unreduced:
// all communication over dp comes after the last of them.
StepResult train_step(TrainState& state, const Batch& batch, std::int64_t microbatches,
                      double rate);

// The mean loss over the text, without dropout, in batches of at most `size` windows; `at_most`
// batches spread evenly over it, or all (0). Throws Error where the text is shorter than a window.
double validate(TrainState& state, const Tokens& text, std::int64_t size, std::int64_t at_most = 0);

// `bytes` that the model writes after the prompt; every device writes the same.
std::string generate(TrainState& state, const std::string& prompt, std::int64_t bytes,
                     std::uint64_t seed);

}  // namespace meshtorch
