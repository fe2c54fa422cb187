// SPDX-License-Identifier: Apache-2.0
//
// The state of a training, and what is done with it beside the steps.
#pragma once

#include <cstdint>

#include <torch/torch.h>

#include <meshtorch/data/text.h>
#include <meshtorch/mesh/mesh.h>
#include <meshtorch/models/gpt.h>
#include <meshtorch/train/explain.h>
#include <meshtorch/train/train_step.h>
#include <meshtorch/train/zero.h>

namespace meshtorch {

struct TrainState {
  Mesh mesh;
  Gpt model;
  Zero<torch::optim::AdamW> optimizer;
};

// A step on this state, by reference: the mean cross entropy of the next token, rows over dp.
TrainStep make_step(TrainState& state, std::int64_t microbatches);

// What its next call will communicate. With gpt_sequence_parallel, also the sums over tp of gradients
// that are taken on parts of the sequence.
Schedule schedule_of(const TrainStep& step, bool sequence_parallel);

// The mean loss over the text, without dropout, in batches of at most `size` windows; `at_most`
// batches spread evenly over it, or all (0). Throws Error where the text is shorter than a window.
double validate(TrainState& state, const Tokens& text, std::int64_t size, std::int64_t at_most = 0);

// `bytes` that the model writes after the prompt; every device writes the same.
std::string generate(TrainState& state, const std::string& prompt, std::int64_t bytes,
                     std::uint64_t seed);

}  // namespace meshtorch
