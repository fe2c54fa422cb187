// SPDX-License-Identifier: Apache-2.0
//
// A State (tensor/state.h) as one safetensors file: whole tensors under their paths, kinds in the file's
// metadata. With its random state a run goes on where it stopped, dropout included:
//
//   mt::save(mt::State(*model), "state.safetensors");
//   mt::update(*model, mt::load_state("state.safetensors"));   // into the layouts that the module has
#pragma once

#include <string>

#include <meshtorch/tensor/state.h>

namespace meshtorch {

// One whole tensor at a time is held on the host. The file appears whole or not at all. Of several
// processes all call it and process 0 writes; it is there when any of them returns.
void save(const State& state, const std::string& path);

// Plain tensors, in the order of the file. Throws Error where the file is none, or names a kind that there
// isn't; what save() did not write is parameters.
State load_state(const std::string& path);

}  // namespace meshtorch
