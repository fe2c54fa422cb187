// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/train/microbatch.h>

#include <ATen/ATen.h>

#include <meshtorch/base/error.h>
#include <meshtorch/layout/shard.h>
#include <meshtorch/tensor/meta.h>
#include <meshtorch/tensor/sharded.h>
#include <meshtorch/tensor/sharding.h>

namespace meshtorch {
namespace {

void check(const Batch& batch, std::int64_t count) {
  auto refuse = [](std::string where, std::string what, std::string remedy) {
    fail({.op = "microbatches",
          .where = std::move(where),
          .what = std::move(what),
          .remedy = std::move(remedy)});
  };
  if (!batch.inputs.defined() || !batch.targets.defined() || batch.inputs.dim() == 0 ||
      batch.targets.dim() == 0) {
    refuse("batch", "expected inputs and targets with a batch dim", "give both");
  }
  const std::int64_t rows = batch.inputs.size(0);
  if (rows != batch.targets.size(0)) {
    refuse("batch", text("inputs have ", rows, " rows, targets ", batch.targets.size(0)),
           "give as many of both");
  }
  if (count < 1 || count > rows) {
    refuse("count", text("got ", count, ", expected 1 to the batch size ", rows),
           "use fewer microbatches or a larger batch");
  }
}

bool counts_targets(const at::Tensor& targets) {
  return at::isIntegralType(targets.scalar_type(), false);
}

std::int64_t valid(const at::Tensor& targets, std::int64_t ignore_index) {
  if (!counts_targets(targets)) return targets.numel();
  return item_or(targets.ne(ignore_index).sum(), targets.numel()).to<std::int64_t>();
}

}  // namespace

std::vector<Microbatch> microbatches(const Batch& batch, std::int64_t count,
                                     const NamedSharding& sharding, MicrobatchOptions options) {
  check(batch, count);
  const std::int64_t rows = batch.inputs.size(0);
  const std::int64_t total = valid(batch.targets, options.ignore_index);
  if (total == 0) {
    fail({.op = "microbatches",
          .where = "targets",
          .what = text("every one is ignored (", options.ignore_index, ")"),
          .remedy = "give a batch with valid targets"});
  }
  std::vector<Microbatch> results;
  for (std::int64_t i = 0; i < count; ++i) {
    const Interval piece = chunk({0, rows}, i, count);
    if (piece.size() == 0) continue;
    const at::Tensor host = batch.targets.narrow(0, piece.begin, piece.size());
    const std::int64_t mine = valid(host, options.ignore_index);
    if (mine == 0) continue;  // its mean is 0 / 0, and nothing of it counts
    at::Tensor targets = device_put(host, sharding);
    if (counts_targets(host)) {
      Allocation& allocation = *sharded_view(targets)->allocation();
      allocation.count = std::make_shared<const Allocation::Count>(
          Allocation::Count{allocation.version, host.numel(), options.ignore_index, mine});
    }
    results.emplace_back(device_put(batch.inputs.narrow(0, piece.begin, piece.size()), sharding),
                         std::move(targets),
                         static_cast<double>(mine) / static_cast<double>(total));
  }
  return results;
}

}  // namespace meshtorch
