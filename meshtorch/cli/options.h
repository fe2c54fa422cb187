// SPDX-License-Identifier: Apache-2.0
//
// What `meshtorch train` can be told. The defaults are the program's promise: a GPT that reads on
// 8 virtual devices, after a few minutes on 2 cores.
#pragma once

#include <cstdint>
#include <string>

#include <meshtorch/mesh/mesh.h>
#include <meshtorch/models/gpt.h>

namespace meshtorch {

struct TrainOptions {
  std::int64_t devices = 8;        // virtual devices of this process
  std::string mesh = "dp=4,tp=2";  // must have the axes dp and tp; others hold replicas
  std::int64_t microbatches = 4;   // of a step
  int zero = 1;                    // stage
  GptOptions model = {.length = 128, .width = 128, .layers = 4, .heads = 4};
  std::int64_t batch = 64;      // windows of a step, all microbatches together
  double learning_rate = 4e-3;  // at its peak
  std::int64_t steps = 600;
  std::string data;                   // a file; its bytes are the tokens
  std::uint64_t seed = 1;             // of weights, batches, dropout and the sample
  std::string out = "out/train";      // folder
  std::int64_t sample = 300;          // bytes to generate at the end
  std::int64_t validate_every = 100;  // steps between quick validations; 0: only at the end
  bool strict = false;                // an implied gather is an error
  int threads = 0;                    // of the CPU's kernels; 0: libtorch's own choice
};

// The mesh that the options ask for, with every option checked that can be without data. Throws
// Error: a mesh that does not parse, lacks dp or tp or is larger than the devices, heads that tp
// does not divide, a batch smaller than the microbatches, sizes out of range.
Mesh checked_mesh(const TrainOptions& options);

// The rate of step `step` (1 .. steps): linear over the first 5% of the steps, then half a cosine
// down to a twentieth of the peak.
double learning_rate(const TrainOptions& options, std::int64_t step);

}  // namespace meshtorch
