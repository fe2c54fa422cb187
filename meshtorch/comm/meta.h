// SPDX-License-Identifier: Apache-2.0
//
// Meta shards: local tensors on libtorch's meta device, which have sizes, strides and a dtype but
// neither values nor memory. A program on them makes the layouts, shapes and collectives of a real run.
//
// Meta shards of one shape are interchangeable, so one tensor stands for all of them wherever it can:
// an op, or a collective, then runs once per distinct shape, however many devices there are.
#pragma once

#include <meshtorch/comm/communicator.h>

namespace meshtorch {

// None for no shards at all.
bool is_meta(const Shards& shards);

// A meta tensor of the same sizes, strides and dtype; a meta tensor itself.
at::Tensor without_values(const at::Tensor& tensor);
Shards without_values(const Shards& shards);

// Puts one tensor for all shards of the same sizes and strides. The shards must not be views.
void share_equal(Shards& shards);

// The collectives of communicator.h where every position is addressable.
namespace meta {

Shards run(const Request& request, const Shards& shards);

}  // namespace meta
}  // namespace meshtorch
