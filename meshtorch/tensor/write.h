// SPDX-License-Identifier: Apache-2.0
//
// Ops that write: what may be written, and the writes that need more than running the op on the
// locals - copies, fills, accumulation, changes of sizes in place, out= arguments.
#pragma once

#include <ATen/core/stack.h>

#include <meshtorch/tensor/decision.h>

namespace meshtorch {

class Runtime;

// Holds no value yet, so that it has no layout of its own.
bool fresh(const ShardedView& view);

// Nothing else sees this storage: its representation may be replaced.
bool unaliased(const ShardedView& view);

// Throws Error where writing to this sharded tensor would be lost: it, or a view of it, had to
// communicate. Throws libtorch's error where its elements overlap (an expansion).
void check_writable(const OpInfo& info, const std::string& operand, const at::Tensor& tensor);

// Throws libtorch's error where `value` is of a type that cannot be written to `to`: float to long.
void check_cast(const at::Tensor& value, const at::Tensor& to);

// The call of the functional op in place of one that writes `to`: reductions and scans, which would choose
// a type, compute in that of `to`.
void keep_type(const c10::OperatorHandle& functional, torch::jit::Stack& call,
               const at::Tensor& to);

// Called for each written view: new version, content is a value now.
void written(ShardedView& view);

// Where a view of a plain tensor, or the base of one, is written with sharded operands: those are
// gathered and the plain tensor stays plain. False where there is none.
bool run_on_plain_views(const c10::OperatorHandle& op, Runtime& runtime, Frame& frame,
                        torch::jit::Stack& stack);

// A plain tensor that is written with a sharded operand becomes a replicated sharded tensor, for every
// handle of it. Strict mode refuses.
void convert_plain_destinations(Runtime& runtime, Frame& frame);

// Accumulation (add_ with alpha one) adopts the addend's layout where the destination's is not the
// program's choice: a fresh buffer takes all of it; a replicated one becomes unreduced along the axes
// where the addend is (its value stays on coordinate 0).
void adopt_accumulation(Frame& frame);

// The results stay on the stack as libtorch expects them.
void run_copy(Frame& frame, torch::jit::Stack& stack);
void run_fill(const c10::OperatorHandle& op, Frame& frame, torch::jit::Stack& stack);
void run_metadata(const c10::OperatorHandle& op, Frame& frame, torch::jit::Stack& stack);
void run_out(Frame& frame, torch::jit::Stack& stack);

// Brings `value` into the written wrapper, which keeps its layout. Same shape.
void assign(const Frame& frame, std::size_t operand, const at::Tensor& value);

}  // namespace meshtorch
