// SPDX-License-Identifier: Apache-2.0
//
// reshard for several readers of one tensor who do not know of each other.
#pragma once

#include <ATen/core/Tensor.h>

#include <meshtorch/mesh/partition_spec.h>

namespace meshtorch {

// reshard(x, spec); but where this thread's latest call had the same x, unchanged since, and the same spec,
// and its result still lives, that result: one node of autograd for all, so that one collective moves the
// value and one moves the sum of the gradients. Nothing is kept alive for it: without autograd, where nobody
// saves an operand, each reader has its own.
at::Tensor shared_reshard(const at::Tensor& x, const PartitionSpec& spec);

}  // namespace meshtorch
