// SPDX-License-Identifier: Apache-2.0
//
// What init_sharded knows of libtorch's ops. Internal.
#pragma once

#include <string>
#include <string_view>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace meshtorch {

// "aten::fill_.Scalar".
std::string full_name(const c10::OperatorHandle& op);

// The arguments of a call, on top of the stack.
c10::IValue* arguments_of(const c10::OperatorHandle& op, torch::jit::Stack& stack);
// The argument of this name; null where the op has none.
c10::IValue* find_argument(const c10::OperatorHandle& op, torch::jit::Stack& stack,
                           std::string_view name);

// Makes a tensor that may be sharded, on the default device.
bool is_factory(const c10::OperatorHandle& op, torch::jit::Stack& stack);
// In place, with numbers alone, and to the bit the same on any part of a tensor.
bool is_exact(const c10::OperatorHandle& op);
// Reads sizes only, or copies all values.
bool copies_or_measures(const c10::OperatorHandle& op);
bool gives_view(const c10::OperatorHandle& op);
bool draws_normals(const c10::OperatorHandle& op);
// Writes one number everywhere.
bool fills(const c10::OperatorHandle& op);
// Gives the host a value.
bool reads_values(const c10::OperatorHandle& op);

}  // namespace meshtorch
