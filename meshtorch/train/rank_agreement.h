// SPDX-License-Identifier: Apache-2.0
//
// What all ranks must decide alike, of several processes too: each process knows its own ranks only, and
// what one of them did may ask for a collective. One process asks nobody. Internal to local_map.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <meshtorch/layout/layout.h>
#include <meshtorch/train/rank.h>
#include <meshtorch/train/rank_values.h>

namespace meshtorch {

// For each flag: whether it is set on any rank of any process. `mine`: on any of this one's. One small
// message where there are several processes.
std::vector<bool> on_any_rank(const RankGrid& grid, const std::vector<bool>& mine);

// What all ranks say of their results.
struct RankReport {
  std::vector<std::vector<Shape>> shapes;  // by rank and result
  std::vector<Layout> layouts;             // by result, of the automatic axes: the first rank's
};

// By rank and result. Throws Error, on every process, where ranks differ in how many there are, their
// dtypes or numbers of dims.
RankReport report_everywhere(const RankGrid& grid, const std::vector<std::vector<RankPart>>& parts);

// By rank and gradient, of which some are not there: for each the layout of the first that is; nullopt: no
// rank has one.
std::vector<std::optional<Layout>> layouts_everywhere(
    const RankGrid& grid, const std::vector<std::vector<RankPart>>& parts);

}  // namespace meshtorch
