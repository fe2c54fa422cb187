// SPDX-License-Identifier: Apache-2.0
//
// Splitting a global batch into microbatches whose gradients add up to the batch's.
//
//   for (const auto& micro : mt::microbatches({inputs, targets}, 4, {mesh, P("dp")})) {
//     (model->loss(micro.inputs, micro.targets) * micro.weight()).backward();
//   }
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include <meshtorch/data/batch.h>
#include <meshtorch/mesh/named_sharding.h>

namespace meshtorch {

class Microbatch {
 public:
  Microbatch(at::Tensor inputs_, at::Tensor targets_, double weight)
      : inputs(std::move(inputs_)), targets(std::move(targets_)), weight_(weight) {}

  at::Tensor inputs;   // placed
  at::Tensor targets;  // placed

  // Its share of the batch's valid targets: a mean loss times this, summed over the microbatches, is the
  // mean over the batch, also where microbatches differ in size or in ignored targets.
  double weight() const { return weight_; }

 private:
  double weight_;
};

struct MicrobatchOptions {
  // Integer targets of this value do not count, as in torch's cross_entropy.
  std::int64_t ignore_index = -100;
};

// `count` pieces of ceil(batch / count) rows (the last may be shorter; pieces without a row or without a
// valid target are left out), each placed by `sharding`. The
// number of valid targets is counted here, on the host, so that no loss has to communicate for it.
// Throws Error: count below one or above the batch size, inputs and targets of other lengths, a batch
// without any valid target.
std::vector<Microbatch> microbatches(const Batch& batch, std::int64_t count,
                                     const NamedSharding& sharding, MicrobatchOptions options = {});

}  // namespace meshtorch
