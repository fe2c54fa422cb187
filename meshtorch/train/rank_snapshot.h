// SPDX-License-Identifier: Apache-2.0
//
// A module's buffers as they were before the ranks ran. fn writes them where they are; so a call that
// fails puts them back, and what an op wrote without counting it is found by its value. Internal to
// local_map.
#pragma once

#include <cstddef>
#include <vector>

#include <meshtorch/train/local_map_program.h>
#include <meshtorch/train/rank_arguments.h>

namespace meshtorch {

// Copies batch statistics (by their names: running_mean, running_var, num_batches_tracked) and other
// buffers of no more than kCopied bytes a device: a large mask is not copied at every call. What has no
// values is not copied.
class BufferSnapshot {
 public:
  static constexpr std::size_t kCopied = 64 * 1024;

  BufferSnapshot(const std::vector<RankLeaf>& arguments, const std::vector<LaidOut>& laid);

  // Whether a batch statistic has other values than before, on any of this process's devices.
  bool changed(std::size_t leaf) const;
  // What was copied is as it was before.
  void restore() const;

 private:
  const std::vector<RankLeaf>& arguments_;
  const std::vector<LaidOut>& laid_;
  std::vector<Shards> before_;  // by leaf; empty: not copied
};

}  // namespace meshtorch
