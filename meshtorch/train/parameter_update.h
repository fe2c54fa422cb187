// SPDX-License-Identifier: Apache-2.0
//
// Updated shards on their way into what the parameters keep.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <meshtorch/train/zero_leaf.h>

namespace meshtorch {

// Begins to bring the shards of these leaves into what is stored, in collectives of bucket_bytes in this
// order; nothing where they share memory. A parameter that is read waits for its own bucket. What is
// given calls back in the same way for each bucket that is under way; without `overlap` there is none.
std::vector<std::function<void()>> bring_to_parameters(const std::vector<ZeroLeaf*>& leaves,
                                                       std::int64_t bucket_bytes, bool overlap);

}  // namespace meshtorch
