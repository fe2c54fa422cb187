// SPDX-License-Identifier: Apache-2.0
//
// What `meshtorch train` can be told. The defaults are the program's promise: a GPT that reads on
// 8 virtual devices, after a few minutes on 2 cores.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <meshtorch/mesh/mesh.h>
#include <meshtorch/models/gpt.h>
#include <meshtorch/train/precision.h>

namespace meshtorch {

struct TrainOptions {
  std::int64_t devices = 8;        // virtual devices, of all processes together
  std::string mesh = "dp=4,tp=2";  // must have the axes dp and tp; others hold replicas
  std::int64_t microbatches = 4;   // of a step
  int zero = 1;                    // stage
  // Left out: float32 throughout. Else losses are computed in its output dtype.
  std::optional<Precision> precision;
  bool sequence_parallel = false;  // activations between products are cut over tp
  GptOptions model = {.length = 64, .width = 128, .layers = 2, .heads = 4};
  std::int64_t batch = 16;      // windows of a step, all microbatches together
  double learning_rate = 8e-3;  // at its peak
  std::int64_t steps = 1200;
  std::string data;                   // a file; its bytes are the tokens
  std::uint64_t seed = 1;             // of weights, batches, dropout and the sample
  std::string out = "out/train";      // folder
  std::int64_t sample = 300;          // bytes to generate at the end
  std::int64_t validate_every = 200;  // steps between quick validations; 0: only at the end
  bool strict = false;                // an implied gather is an error
  bool explain = false;               // print what a step will communicate
  // Of the second step, as the first one also makes what later ones reuse.
  std::string trace;    // file to write; empty: none
  bool memory = false;  // print what the devices held
  int threads = 1;      // of a kernel: a device's share is too small for more; 0: all cores
};

// The mesh that the options ask for, with every option checked that can be without data. Throws
// Error: a mesh that does not parse, lacks dp or tp or is larger than the devices, heads that tp
// does not divide, a batch smaller than the microbatches, a look at the second step of one, sizes out
// of range.
Mesh checked_mesh(const TrainOptions& options);

// The rate of step `step` (1 .. steps): linear over the first 5% of the steps, then half a cosine
// down to a twentieth of the peak.
double learning_rate(const TrainOptions& options, std::int64_t step);

}  // namespace meshtorch
