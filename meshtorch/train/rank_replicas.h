// SPDX-License-Identifier: Apache-2.0
//
// What several ranks have a copy of. Internal to local_map.
#pragma once

#include <string>

#include <ATen/core/Tensor.h>

#include <meshtorch/comm/communicator.h>
#include <meshtorch/train/rank.h>

namespace meshtorch {

// The manual axes along which ranks have copies: those that a layout does not name.
AxisList shared_axes(const RankGrid& grid, const Layout& manual);

// Throws Error where copies differ, by their checksums: one small gather.
void check_equal(const RankGrid& grid, const Shards& locals, const Layout& manual,
                 const std::string& where);

// Every copy becomes their mean, of integers the largest.
void take_mean(const RankGrid& grid, const Shards& locals, const Layout& manual);

}  // namespace meshtorch
