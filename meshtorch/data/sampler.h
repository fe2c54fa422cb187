// SPDX-License-Identifier: Apache-2.0
//
// The order in which a set of examples is read: shuffled anew in every epoch, cut in batches.
//
//   Sampler sampler({.examples = digits.train.size(), .batch = 64, .seed = 1});
//   for (std::int64_t step = 0; step < 10 * sampler.steps(); ++step)
//     train(digits.train.images.index_select(0, sampler.indices(step)), ...);
//
// Nothing is stored and nothing is carried on: a batch depends on the options and the step alone, an
// index costs O(1). A run that resumes at a step needs no other state, and every process of a program
// sees the same stream, however many there are; each may ask for its rows of a batch alone.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace meshtorch {

// Element i of a pseudorandom permutation of 0 .. n-1, one for each key.
//
// A Feistel network (Luby and Rackoff: "How to construct pseudorandom permutations from pseudorandom
// functions", 1988) over b bits, the least with n <= 2^b and at least 6: eight rounds, of which the even
// ones change the low ceil(b / 2) bits by a function of the high ones and the odd ones the reverse. That
// function is the low bits of counter_bits(key, half * 8 + round). A result outside 0 .. n-1 goes
// through it again until it is inside (cycle walking; Black and Rogaway: "Ciphers with arbitrary finite
// domains", 2002), less than twice on average where n > 32. For data order, not for adversaries.
// Throws Error where i is not in 0 .. n-1.
std::int64_t permuted(std::uint64_t key, std::int64_t i, std::int64_t n);

struct SamplerOptions {
  std::int64_t examples = 0;
  std::int64_t batch = 1;
  std::uint64_t seed = 0;
  bool shuffle = true;
  // Leave out what does not fill a batch at the end of an epoch; else the last one is short.
  bool drop_last = false;
};

class Sampler {
 public:
  // Throws Error: an option below one, `drop_last` where no batch is full.
  explicit Sampler(const SamplerOptions& options);

  // Batches of an epoch.
  std::int64_t steps() const { return steps_; }

  // Where a step, counted from the first one of epoch 0, is.
  struct Position {
    std::int64_t epoch = 0;
    std::int64_t step = 0;  // of the epoch
  };
  Position position(std::int64_t step) const;

  // Rows of the batch: `batch`, or fewer for the last one of an epoch.
  std::int64_t rows(std::int64_t step) const;

  // The examples of the batch at a step, int64 [rows(step)]: elements batch * position.step, ... of
  // the permutation whose key is counter_bits(seed, epoch). Throws Error where the step is below zero.
  at::Tensor indices(std::int64_t step) const;
  // Of its rows [begin, end) alone. Throws Error where they are not in [0, rows(step)).
  at::Tensor indices(std::int64_t step, std::int64_t begin, std::int64_t end) const;

 private:
  SamplerOptions options_;
  std::int64_t steps_ = 0;
};

}  // namespace meshtorch
