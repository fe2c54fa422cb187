// SPDX-License-Identifier: Apache-2.0
//
// Sharding a torch::nn module in place: every handle of a parameter that user code holds sees the
// sharded one, as with module->to(device). (Structs and containers of tensors: tree.h.)
//
//   shard(*model, mesh, {{"up\\.weight", P("tp")}, {"down\\.weight", P(whole, "tp")}, {"", P()}});
#pragma once

#include <torch/nn/module.h>

#include <meshtorch/mesh/mesh.h>
#include <meshtorch/tree/rules.h>

namespace meshtorch {

// Lays every parameter and buffer out by the rules. Parameters that no rule names are an error unless
// rules.otherwise says what they get; buffers that none names are replicated. A tensor under several
// paths stays one tensor. Nothing is changed where an Error is thrown.
MatchReport shard(torch::nn::Module& module, const Mesh& mesh, const Rules& rules);

// Every parameter and buffer whole on every device.
MatchReport replicate(torch::nn::Module& module, const Mesh& mesh);

// Back to plain tensors, in place.
void device_get(torch::nn::Module& module);

}  // namespace meshtorch
