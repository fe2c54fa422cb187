// SPDX-License-Identifier: Apache-2.0
//
// A reduction whose dims are sharded: the op runs on what each device holds and a small collective joins
// the parts, so that the tensor stays where it is.
#pragma once

#include <meshtorch/tensor/dispatch.h>

namespace meshtorch {

// What the arguments `self`, `dim` and `keepdim` of a call mean on the devices. The op's rule says that
// its results are complete on every device ("reduced").
class Reducing {
 public:
  explicit Reducing(const KernelCall& call);

  // No device lacks a part of a result: the op itself, on every device, is the answer.
  bool is_local() const { return axes.empty(); }
  KernelResult run_as_is(std::size_t outputs) const;

  const at::Tensor& self(std::size_t d) const { return call.locals[0][d]; }
  // A device holds nothing of what is reduced, and others do: its part is an identity.
  bool is_empty(std::size_t d) const;
  // The shape of a device's part of a result.
  Shape part_shape(std::size_t d) const;
  // The op on a device's local; where that is empty, results of the right shape and dtype with any values.
  std::vector<at::Tensor> run(std::size_t d) const;

  std::int64_t global_count() const;  // elements that make one of a result
  std::int64_t local_count(std::size_t d) const;

  // Joins the parts. A bool counts as a byte, which every transport knows.
  Shards all_reduce(Shards parts, meshtorch::Reduction reduction) const;
  // Every device's parts, stacked in front in the order of the ranks.
  Shards all_gather(const Shards& parts) const;

  const KernelCall& call;
  std::vector<std::int64_t> dims;  // that are reduced, counted from the front, ascending
  bool keepdim = false;
  AxisSet axes;  // over which they are sharded
};

}  // namespace meshtorch
