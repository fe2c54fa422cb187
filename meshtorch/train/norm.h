// SPDX-License-Identifier: Apache-2.0
//
// Norms over tensors of any layouts.
#pragma once

#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

namespace meshtorch {

// The 2-norm of all elements of all tensors, each element counted once whatever its layout: plain, sharded,
// replicated, on one mesh or several. What is unreduced is summed first (one reduction a tensor: reduce
// before where it matters); then one all-reduce of a number for each mesh. Undefined tensors are left out.
// Nothing where a tensor has no values (a dry run), which records the same collectives.
std::optional<double> global_norm(const std::vector<at::Tensor>& tensors);

// Scales the gradients in place so that their global norm is at most `max_norm`, as
// torch::nn::utils::clip_grad_norm_, for parameters of any layouts and meshes. Gives the norm before.
// Throws Error where max_norm is not above zero.
std::optional<double> clip_grad_norm_(const std::vector<at::Tensor>& parameters, double max_norm);

// What to multiply gradients of this norm with.
double clip_factor(double norm, double max_norm);

// Multiplies in place, whatever the layout; no communication.
void scale_all(const std::vector<at::Tensor>& tensors, double factor);

}  // namespace meshtorch
