// SPDX-License-Identifier: Apache-2.0
//
// Splitting a global batch into microbatches whose gradients add up to the batch's.
//
//   for (const auto& micro : mt::microbatches({inputs, targets}, 4, {mesh, P("dp")})) {
//     (model->loss(micro.inputs, micro.targets) * micro.weight()).backward();
//   }
//
// Where no process is to have the batch whole, each reads its own rows of it:
//
//   mt::RowSource source{.rows = 64, .read = [&](std::int64_t begin, std::int64_t end) {
//     return text.train().batch(options, step, begin, end);
//   }};
//   for (const auto& micro : mt::microbatches(source, 4, {mesh, P("dp")})) { ... the same ... }
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

#include <meshtorch/data/batch.h>
#include <meshtorch/mesh/named_sharding.h>

namespace meshtorch {

class Microbatch {
 public:
  // `valid` of the `total` valid targets of the batch are its.
  Microbatch(at::Tensor inputs_, at::Tensor targets_, std::int64_t valid, std::int64_t total)
      : inputs(std::move(inputs_)), targets(std::move(targets_)), valid_(valid), total_(total) {}

  at::Tensor inputs;   // placed
  at::Tensor targets;  // placed

  // Its share of the batch's valid targets: a mean loss times this, summed over the microbatches, is the
  // mean over the batch, also where microbatches differ in size or in ignored targets.
  double weight() const { return static_cast<double>(valid_) / static_cast<double>(total_); }
  std::int64_t valid() const { return valid_; }
  // The last of its batch: gradients are final in its backward (reduce_scope of zero.h).
  bool last() const { return last_; }
  void set_last() { last_ = true; }

 private:
  std::int64_t valid_, total_;
  bool last_ = false;
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

// A global batch that is read in parts.
struct RowSource {
  std::int64_t rows = 0;  // of the global batch, on every process
  // Rows [begin, end) of it. Also asked for none of them (begin == end), where a process holds no part
  // of a microbatch: tensors without rows, of the dtype and the other sizes that the batch has.
  std::function<Batch(std::int64_t begin, std::int64_t end)> read;
};

// As above, to the bit, of the batch that `source` describes. Each process reads the rows that its
// devices hold, piece by piece, and places them (device_put of a ProcessLocal). Integer targets are counted
// together, replicas once: one sum of `count` numbers for the batch, "microbatches" in the ledger's
// scopes. Mesh axes that do not shard the batch compare checksums of what their processes read
// (RuntimeOptions::check_inputs). Throws Error: as above, what is read has other sizes than asked for,
// the rows of a process are no interval (process_box).
std::vector<Microbatch> microbatches(const RowSource& source, std::int64_t count,
                                     const NamedSharding& sharding, MicrobatchOptions options = {});

}  // namespace meshtorch
