// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/train/rank_snapshot.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <string_view>

#include <meshtorch/train/rank_values.h>

namespace meshtorch {
namespace {

bool is_statistic(const RankLeaf& leaf) {
  constexpr std::array<std::string_view, 3> names{"running_mean", "running_var",
                                                  "num_batches_tracked"};
  const std::string_view name =
      std::string_view(leaf.path).substr(leaf.path.find_last_of(". ") + 1);
  return leaf.buffer && std::ranges::find(names, name) != names.end();
}

bool is_copied(const RankLeaf& leaf, const Shards& locals) {
  if (!leaf.buffer || locals.front().is_meta()) return false;
  return is_statistic(leaf) || locals.front().nbytes() <= BufferSnapshot::kCopied;
}

// NaN is as NaN was.
bool same(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes()) return false;
  return at::equal(a, b) || a.eq(b).logical_or(a.ne(a).logical_and(b.ne(b))).all().item<bool>();
}

bool all_same(const Shards& a, const Shards& b) { return std::ranges::equal(a, b, same); }

}  // namespace

BufferSnapshot::BufferSnapshot(const std::vector<RankLeaf>& arguments,
                               const std::vector<LaidOut>& laid)
    : arguments_(arguments), laid_(laid), before_(laid.size()) {
  at::AutoDispatchBelowADInplaceOrView below;
  for (std::size_t i = 0; i < laid.size(); ++i) {
    if (!is_copied(arguments[i], laid[i].locals)) continue;
    for (const at::Tensor& local : laid[i].locals) before_[i].push_back(local.clone());
  }
}

bool BufferSnapshot::changed(std::size_t leaf) const {
  at::AutoDispatchBelowADInplaceOrView below;
  return is_statistic(arguments_[leaf]) && !before_[leaf].empty() &&
         !all_same(before_[leaf], laid_[leaf].locals);
}

void BufferSnapshot::restore() const {
  at::AutoDispatchBelowADInplaceOrView below;
  for (std::size_t i = 0; i < before_.size(); ++i) {
    if (before_[i].empty() || all_same(before_[i], laid_[i].locals)) continue;
    for (std::size_t d = 0; d < before_[i].size(); ++d) laid_[i].locals[d].copy_(before_[i][d]);
    mark_written(laid_[i].tensor);
  }
}

}  // namespace meshtorch
