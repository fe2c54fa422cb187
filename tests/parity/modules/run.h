// SPDX-License-Identifier: Apache-2.0
//
// Runs a row of the table, plain or on a mesh, and reports what it moved.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "row.h"

namespace meshtorch::modules {

struct Place {
  std::vector<MeshAxis> axes;
  std::int64_t batch = 4;
};

struct Outcome {
  std::shared_ptr<nn::Module> module;  // its gradients and buffers
  Tensors inputs;                      // their gradients
  Tensors outputs;
  std::vector<std::string> forward, backward;  // what moved, in program order
};

// "all_reduce native_batch_norm"; where nobody asked and no algorithm needs it, in bold.
bool implied(const std::string& moved);

// Forward and backward of fixed weights; in evaluation, once more without gradients. The batch goes over dp and the layout over tp, where the mesh
// has those axes; without a mesh it is plain libtorch.
Outcome run(const Row& row, std::int64_t batch, bool training, const std::optional<Mesh>& mesh = {},
            const Layout& layout = {});

// Outputs, gradients and buffers equal those of plain libtorch or, for a module that draws random
// numbers, those of a mesh of one device.
Outcome expect_parity(const Row& row, const Place& place, bool training, const Layout& layout = {});

}  // namespace meshtorch::modules
