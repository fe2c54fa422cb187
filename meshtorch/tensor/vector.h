// SPDX-License-Identifier: Apache-2.0
//
// torch::nn::utils::parameters_to_vector and back, for sharded parameters: libtorch's own gather each
// one where nobody sees it, and leave the result whole.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include <meshtorch/mesh/partition_spec.h>

namespace meshtorch {

// The elements of all parameters in order, each parameter's row-major: shape [n], laid out as `spec`
// says. Differentiable. Each parameter that is not whole already is gathered, the ledger says `reshard`.
// Plain parameters give a plain vector. Throws Error where there are none, where parameters are on
// several meshes, or some are plain, or of another dtype.
at::Tensor parameters_to_vector(const std::vector<at::Tensor>& parameters,
                                const PartitionSpec& spec = {});

// Writes the elements of `vector` into the parameters, each as it is laid out; no autograd. A vector that
// is not whole is gathered once. Throws Error, before anything is written, where its size is not that of
// all parameters together.
void vector_to_parameters(const at::Tensor& vector, const std::vector<at::Tensor>& parameters);

}  // namespace meshtorch
