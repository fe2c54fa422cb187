// SPDX-License-Identifier: Apache-2.0
//
// What fn wrote in its arguments, once all ranks are done. Internal to local_map.
#pragma once

#include <cstddef>
#include <vector>

#include <meshtorch/train/local_map_program.h>
#include <meshtorch/train/rank.h>
#include <meshtorch/train/rank_arguments.h>

namespace meshtorch {

// By leaf, of any rank of any process.
struct RankWritten {
  std::vector<bool> counted;  // autograd counted a write
  std::vector<bool> changed;  // its values are others (rank_snapshot.h)

  bool any(std::size_t leaf) const { return counted[leaf] || changed[leaf]; }
};

// The leaves to be settled. Throws Error where one of them may not be written; nothing is settled then.
std::vector<std::size_t> written_leaves(const RankGrid& grid,
                                        const std::vector<RankLeaf>& arguments,
                                        const std::vector<LaidOut>& laid,
                                        const RankWritten& written);

// Takes means where they are asked for, and lets the modules have what was written.
void settle_written(const RankGrid& grid, const std::vector<RankLeaf>& arguments,
                    const std::vector<LaidOut>& laid, const RankWritten& written,
                    const std::vector<std::size_t>& leaves);

}  // namespace meshtorch
