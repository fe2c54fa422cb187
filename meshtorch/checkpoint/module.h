// SPDX-License-Identifier: Apache-2.0
//
// A module's weights as one safetensors file, whole tensors under their own paths, whatever their
// layout: any mesh loads what any other saved, and so does any program that reads safetensors.
//
//   mt::save(*model, "model.safetensors");
//   mt::load(*model, "model.safetensors");   // into the layouts that the module has
#pragma once

#include <string>

#include <torch/nn/module.h>

namespace meshtorch {

// Parameters and buffers, leaf by leaf: one whole leaf at a time is held on the host. A tensor under
// several paths is written once, under the first. The file appears whole or not at all.
// Of several processes all call it and process 0 writes; it is there when any of them returns.
void save(const torch::nn::Module& module, const std::string& path);

// Throws Error that names the leaf, before anything is changed: a leaf that the file lacks, an entry
// that the module lacks, another shape or dtype; and for whatever is wrong with the file itself.
void load(torch::nn::Module& module, const std::string& path);

}  // namespace meshtorch
