// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/train/rank_written.h>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/variable.h>

#include <meshtorch/base/error.h>
#include <meshtorch/tensor/sharding.h>
#include <meshtorch/train/rank_replicas.h>
#include <meshtorch/train/rank_values.h>

namespace meshtorch {
namespace {

bool is_shared(const RankGrid& grid, const LaidOut& laid) {
  return !shared_axes(grid, laid.manual).empty();
}

void check_may_write(const RankLeaf& leaf, bool shared) {
  if (leaf.buffer && !(shared && leaf.writes == RankWrites::refuse)) return;
  fail({.op = "local_map",
        .where = leaf.path,
        .what = leaf.buffer ? "fn wrote a buffer of which every rank has a copy"
                            : "fn wrote its argument in place",
        .remedy = leaf.buffer ? "use pmap, which takes means of batch statistics, or return it"
                              : "let fn write a clone, and return it"});
}

// Without values it is not seen which of them changed: one that was written stands for all.
bool statistics_written(const std::vector<RankLeaf>& arguments, const RankWritten& written) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].writes != RankWrites::refuse && written.any(i)) return true;
  }
  return false;
}

// What the ranks wrote is in the memory of the tensor that was laid out.
void store(const RankLeaf& leaf, const LaidOut& laid) {
  if (!laid.tensor.is_same(leaf.tensor)) {
    leaf.tensor.copy_(is_sharded(leaf.tensor) ? laid.tensor : full(laid.tensor));
    return;
  }
  mark_written(laid.tensor);
}

}  // namespace

std::vector<std::size_t> written_leaves(const RankGrid& grid,
                                        const std::vector<RankLeaf>& arguments,
                                        const std::vector<LaidOut>& laid,
                                        const RankWritten& written) {
  const bool statistics = statistics_written(arguments, written);
  std::vector<std::size_t> leaves;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const bool is_statistic = arguments[i].writes != RankWrites::refuse;
    if (!(is_statistic ? statistics : written.any(i))) continue;
    check_may_write(arguments[i], is_shared(grid, laid[i]));
    leaves.push_back(i);
  }
  return leaves;
}

void settle_written(const RankGrid& grid, const std::vector<RankLeaf>& arguments,
                    const std::vector<LaidOut>& laid, const RankWritten& written,
                    const std::vector<std::size_t>& leaves) {
  c10::NoGradGuard no_grad;
  for (const std::size_t i : leaves) {
    const RankLeaf& leaf = arguments[i];
    if (is_shared(grid, laid[i]) && leaf.writes == RankWrites::mean)
      take_mean(grid, laid[i].locals, laid[i].manual);
    store(leaf, laid[i]);
    if (written.counted[i] && !leaf.tensor.is_inference())
      torch::autograd::impl::bump_version(leaf.tensor);
  }
}

}  // namespace meshtorch
