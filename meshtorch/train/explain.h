// SPDX-License-Identifier: Apache-2.0
//
// What a train step will communicate, before it runs: a value that programs and tests compute with,
// and its text.
//
//   std::cout << explain(step).to_string();
//
//   ZeRO stage 1 over dp of (dp=4, tp=2), 4 microbatches of P(dp)
//
//   phase                      collective      axes  count  tensors  bytes/device  meanwhile
//   -------------------------  --------------  ----  -----  -------  ------------  -------------
//   microbatches 1 to 3, each  -
//   microbatch 4: forward      -
//   microbatch 4: backward     reduce-scatter  dp        2        3         8,256  the rest of...
//                              reduce-scatter  dp        1        2         1,632  waits
//   ...                                                       (all of it: docs/train_step.md)
//
// The numbers come from layouts and sizes alone (layout/plan.h) and equal the ledger's. What is
// assumed: every parameter that requires a gradient gets one in each microbatch, unreduced over the
// axes that shard the batch; gradients become final in reverse order of the parameters. Another
// order moves tensors between buckets and changes how many there are, never their bytes. Not told:
// collectives of the model itself (tensor parallelism, statistics, metrics), and of the inner
// optimizer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <torch/optim/optimizer.h>

#include <meshtorch/comm/ledger.h>
#include <meshtorch/train/train_step.h>
#include <meshtorch/train/zero.h>

namespace meshtorch {

struct PlannedCollective {
  Collective kind;
  std::string axes;        // as in the ledger
  std::int64_t bytes = 0;  // a device, as in the ledger
  int tensors = 1;         // coalesced into it
  std::int64_t whole = 0;  // of the bytes: of parameters that the axis cannot cut
  bool scalar = false;     // a norm, a loss: a number
  std::string meanwhile;   // what the program does while it is under way; empty: it waits
};

struct Phase {
  std::string name;  // "microbatch 4: backward"
  std::vector<PlannedCollective> collectives;
  bool at_most = false;  // how many there are is not known yet
};

// Gradients that add up over the microbatches, kept as `reduce` says.
struct AccumulatorCost {
  Reduce reduce;
  bool chosen = false;
  std::int64_t bytes = 0;        // a device
  std::int64_t collectives = 0;  // of a step
  std::int64_t traffic = 0;      // bytes that a device sends in them
};

// Bytes that the fullest device holds.
struct StepMemory {
  std::int64_t parameters = 0;  // at rest
  // More of them while they are used (stage 3), at most; nothing: not known before the first step.
  std::optional<std::int64_t> gathered = 0;
  std::int64_t accumulator = 0;  // gradients between microbatches
  std::int64_t gradients = 0;    // what the optimizer reads at the end
  std::int64_t shards = 0;       // what it updates, where that is not the parameters themselves
  // What it holds now; nothing: it holds none yet, or is of a type that libtorch does not have.
  std::optional<std::int64_t> optimizer;
};

struct Schedule {
  NamedSharding batch;
  std::string axis;
  int stage = 0;
  std::int64_t microbatches = 1;
  std::vector<Phase> phases;  // in order of time
  std::vector<AccumulatorCost> accumulators;
  StepMemory memory;
  // A device's part of what the axis cuts (stage 0: of all that is trained), whole over the axis.
  std::int64_t parameter_bytes = 0;
  std::int64_t gradient_bytes = 0;  // on the wire
  std::int64_t whole_leaves = 0;    // that the axis cannot cut

  // Of the collectives over the axis: bytes a device sends for what the axis cuts, for leaves left
  // whole, and for numbers.
  std::int64_t bytes() const;
  std::int64_t overlapped_bytes() const;  // of bytes(): begun while the program computes
  std::int64_t whole_bytes() const;
  std::int64_t scalar_bytes() const;
  // (d-1)/d of the gradient bytes and of the parameter bytes: no algorithm sends less.
  std::int64_t lower_bound() const;
  // bytes() in units of (d-1)/d of the parameter bytes, as in zero.h; 0 where the axis has size 1.
  double units() const;
  // A bound from above only: stage 3 before its first step.
  bool at_most() const;

  std::string to_string() const;
};

struct ExplainOptions {
  std::optional<PartitionSpec> batch;  // left out: rows over the Zero's axis
  std::int64_t microbatches = 1;
  // A reduce_scope lets the last microbatch reduce, as TrainStep does.
  bool last_reduces = true;
  // To tell what it holds.
  const torch::optim::Optimizer* optimizer = nullptr;
};

// Of the next step with this Zero. Stage 3: what the last step gathered; before the first, at most
// (for parameters that an op reads once, in forward and in backward). Throws Error: fewer than one
// microbatch, an axis that the mesh does not have.
Schedule explain(const ZeroEngine& zero, const ExplainOptions& options);

// Throws Error where the step's optimizer is no Zero: nothing is scheduled then.
Schedule explain(const TrainStep& step);

}  // namespace meshtorch
