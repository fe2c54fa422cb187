// SPDX-License-Identifier: Apache-2.0
//
// Random numbers by the runtime's own counter: the same on every mesh and in every process, and
// independent of libtorch's generator. Sharded tensors need nothing from here: normal_, uniform_,
// bernoulli_, random_, dropout and the *_like factories draw from the same counter.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace meshtorch {

// A permutation of 0 .. n-1 as a plain int64 tensor; the next draw of Runtime::random(). Throws Error on
// a negative n, and where there is no runtime.
at::Tensor randperm(std::int64_t n);

}  // namespace meshtorch
